#include "worker/device/cpu/machine/compute_pool.h"

#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "worker/device/host/futex.h"

namespace switchyard {
namespace {

constexpr int kSpins = 1000;  // about 30 us of pauses
constexpr Duration kHelperSleep = std::chrono::milliseconds(100);
constexpr Duration kCallerSleep = std::chrono::milliseconds(1);
constexpr int kFieldBits = 12;
constexpr std::uint64_t kFieldMask = (1U << kFieldBits) - 1;

struct Claims {
  std::uint64_t generation;
  std::uint64_t count;
  std::uint64_t next;
};

Claims Unpack(std::uint64_t word) {
  return {word >> (2 * kFieldBits), (word >> kFieldBits) & kFieldMask, word & kFieldMask};
}

std::uint64_t PackWord(const Claims& claims) {
  return (claims.generation << (2 * kFieldBits)) | (claims.count << kFieldBits) | claims.next;
}

bool Never() { return false; }

}  // namespace

absl::StatusOr<std::unique_ptr<ComputePool>> ComputePool::Create(int threads) {
  // With more threads than CPUs a spinning helper would take the CPU from the one that has work.
  const bool crowded = static_cast<unsigned>(threads) > std::thread::hardware_concurrency();
  std::unique_ptr<ComputePool> pool(new ComputePool(crowded ? 0 : kSpins));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      pool->helpers_.emplace_back([raw = pool.get(), thread] { raw->HelperLoop(thread); });
    }
  } catch (const std::system_error& error) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
        absl::StrCat("thread ", pool->threads(), " of ", threads,
                     " compute threads could not be started (", error.what(), "); request fewer"));
  }
  return pool;
}

ComputePool::~ComputePool() {
  stop_.store(true);
  posted_.fetch_add(1);
  FutexWakeAll(posted_);
  for (std::thread& helper : helpers_) helper.join();
}

void ComputePool::Run(std::int64_t count, Task task) { RunUntil(count, task, Never); }

std::int64_t ComputePool::RunUntil(std::int64_t count, Task task, absl::FunctionRef<bool()> stop) {
  // A busy pool is not waited for: the caller's own loop is sure to progress.
  if (helpers_.empty() || count < 2 || busy_.exchange(true, std::memory_order_acquire)) {
    std::int64_t i = 0;
    while (i < count) {
      task(i++, 0);
      if (stop()) break;
    }
    return i;
  }
  task_ = &task;
  done_.store(0, std::memory_order_relaxed);
  const Claims last = Unpack(claims_.load(std::memory_order_relaxed));
  // Release: a helper that claims an index of this generation sees task_. The generation keeps a
  // helper that was slow from claiming an index of the next job for the last one.
  claims_.store(PackWord({last.generation + 1, static_cast<std::uint64_t>(count), 0}),
                std::memory_order_release);
  posted_.fetch_add(1);
  // Sequentially consistent with the helper's increment of sleepers_ and its second look at
  // posted_: one of the two sides sees the other.
  if (sleepers_.load() > 0) FutexWakeAll(posted_);

  Help(0, stop);
  // Only this thread drops indices, so the count no longer changes.
  const auto claimed = static_cast<std::int64_t>(Unpack(claims_.load()).count);
  WaitUntilDone(claimed);
  busy_.store(false, std::memory_order_release);
  return claimed;
}

bool ComputePool::Help(int thread, absl::FunctionRef<bool()> stop) {
  bool helped = false;
  std::uint64_t word = claims_.load(std::memory_order_acquire);
  for (;;) {
    Claims claims = Unpack(word);
    if (claims.next >= claims.count) return helped;
    const auto index = static_cast<std::int64_t>(claims.next);
    ++claims.next;
    if (!claims_.compare_exchange_weak(word, PackWord(claims), std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    // The job cannot end while this claim is open, so task_ is valid.
    (*task_)(index, thread);
    helped = true;
    // The job may end, and the next one begin, as soon as the count is complete. The count is read
    // anew because the caller may have dropped indices; if it is the next job's already, the caller
    // does not sleep for this one.
    const std::int64_t done = done_.fetch_add(1) + 1;
    const bool last = done == static_cast<std::int64_t>(Unpack(claims_.load()).count);
    if (last && thread != 0 && caller_sleeps_.load()) {
      finished_.fetch_add(1);
      FutexWakeAll(finished_);
    }
    if (stop()) DropUnclaimed();
    word = claims_.load(std::memory_order_acquire);
  }
}

void ComputePool::DropUnclaimed() {
  std::uint64_t word = claims_.load(std::memory_order_relaxed);
  Claims claims{};
  do {
    claims = Unpack(word);
    claims.count = claims.next;
  } while (!claims_.compare_exchange_weak(word, PackWord(claims)));
}

void ComputePool::WaitUntilDone(std::int64_t count) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done_.load(std::memory_order_acquire) == count) return;
    SpinPause();
  }
  caller_sleeps_.store(true);
  for (;;) {
    const std::uint32_t seen = finished_.load();
    if (done_.load() == count) break;
    FutexWait(finished_, seen, kCallerSleep);
  }
  caller_sleeps_.store(false);
}

void ComputePool::HelperLoop(int thread) {
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::uint32_t seen = posted_.load();
    if (Help(thread, Never)) continue;
    bool posted = false;
    for (int spin = 0; spin < spins_ && !posted; ++spin) {
      SpinPause();
      posted = posted_.load(std::memory_order_acquire) != seen;
    }
    if (posted) continue;
    sleepers_.fetch_add(1);
    if (posted_.load() == seen) FutexWait(posted_, seen, kHelperSleep);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace switchyard
