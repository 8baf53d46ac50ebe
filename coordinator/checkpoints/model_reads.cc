#include "coordinator/checkpoints/model_reads.h"

#include <chrono>
#include <utility>

namespace switchyard {
namespace {

// Often enough for whoever looks at a checkpoint that is read, and no load for the receiver: a
// large one is told by time, and a small one, of which much is read in that time, by its share.
constexpr Duration kProgressEvery = std::chrono::milliseconds(250);
constexpr std::uint64_t kShares = 50;

}  // namespace

void ModelReads::Check(const std::string& checkpoint, Done done) {
  checker_.Run([check = check_, checkpoint, done = std::move(done)] { done(check(checkpoint)); });
}

void ModelReads::Load(RequestId id, const std::string& checkpoint, Progress progress, Done done) {
  const auto canceled = std::make_shared<std::atomic<bool>>(false);
  canceled_[id] = canceled;
  loader_.Run(
      [load = load_, checkpoint, canceled, progress = std::move(progress), done = std::move(done)] {
        // One that waited behind another may be canceled before it begins.
        if (canceled->load()) return done(absl::CancelledError("the load was canceled"));
        auto due = std::chrono::steady_clock::now();
        std::uint64_t told = 0;
        done(load(checkpoint, [&](std::uint64_t read, std::uint64_t total) {
          if (canceled->load()) return false;
          const auto now = std::chrono::steady_clock::now();
          if (now < due && read < total && read - told < total / kShares) return true;
          due = now + kProgressEvery;
          told = read;
          progress(static_cast<std::int64_t>(read), static_cast<std::int64_t>(total));
          return true;
        }));
      });
}

void ModelReads::Cancel(RequestId id) {
  const auto it = canceled_.find(id);
  if (it != canceled_.end()) it->second->store(true);
}

bool ModelReads::Stop(Duration deadline) {
  for (const auto& [id, canceled] : canceled_) canceled->store(true);
  const bool loaded = loader_.Stop(SerialExecutor::Pending::kDrop, deadline);
  return checker_.Stop(SerialExecutor::Pending::kDrop, deadline) && loaded;
}

}  // namespace switchyard
