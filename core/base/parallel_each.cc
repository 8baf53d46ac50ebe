#include "core/base/parallel_each.h"

#include <algorithm>
#include <optional>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/usable_cpus.h"

namespace switchyard {
namespace {

// Such work prepares what comes, and must not take CPUs from the steps of the present.
constexpr int kNice = 10;

class Items {
 public:
  Items(std::size_t count, const std::function<absl::Status(std::size_t)>& work)
      : count_(count), work_(work) {}

  void Work() {
    while (const std::optional<std::size_t> item = Next()) {
      absl::Status done = work_(*item);
      if (!done.ok()) Keep(*item, std::move(done));
    }
  }
  absl::Status error() const {
    const MutexLock lock(mutex_);
    return error_;
  }

 private:
  std::optional<std::size_t> Next() {
    const MutexLock lock(mutex_);
    if (!error_.ok() || next_ == count_) return std::nullopt;
    return next_++;
  }
  // Items are begun in order, so every item before the first failed one has been begun, and its
  // error comes here too.
  void Keep(std::size_t item, absl::Status error) {
    const MutexLock lock(mutex_);
    if (!error_.ok() && failed_ < item) return;
    failed_ = item;
    error_ = std::move(error);
  }

  const std::size_t count_;
  const std::function<absl::Status(std::size_t)>& work_;
  mutable Mutex mutex_;
  std::size_t next_ SY_GUARDED_BY(mutex_) = 0;
  std::size_t failed_ SY_GUARDED_BY(mutex_) = 0;
  absl::Status error_ SY_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status ParallelEach(std::size_t count, int threads,
                          const std::function<absl::Status(std::size_t)>& work) {
  Items items(count, work);
  // One fewer than asked for, because the caller works too.
  const std::size_t helpers = std::min(count, static_cast<std::size_t>(std::max(threads, 1))) -
                              std::min<std::size_t>(count, 1);
  {
    std::vector<std::jthread> others;
    others.reserve(helpers);
    try {
      for (std::size_t i = 0; i < helpers; ++i) {
        others.emplace_back([&items] {
          // Linux sets it for the calling thread alone.
          (void)::setpriority(PRIO_PROCESS, 0, kNice);
          items.Work();
        });
      }
    } catch (const std::system_error&) {
      // The threads that there are do the work.
    }
    items.Work();
  }
  return items.error();
}

int HalfOfCpus() { return std::clamp(UsableCpus() / 2, 1, 16); }

}  // namespace switchyard
