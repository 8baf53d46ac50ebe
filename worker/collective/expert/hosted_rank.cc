#include "worker/collective/expert/hosted_rank.h"

#include <utility>

#include "core/base/error.h"

namespace switchyard {

HostedRank::HostedRank(Options options)
    : options_(std::move(options)), wake_(options_.follower->wakes().Add(options_.wake)) {
  options_.group->has_source.store(true);
}

HostedRank::~HostedRank() {
  Retire();
  options_.follower->wakes().Remove(wake_);
}

absl::Status HostedRank::Use(absl::FunctionRef<absl::Status(RankTurn&)> work) {
  if (retired_.load()) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     "this source has left the group");
  }
  return options_.follower->Use(options_.group.get(), work);
}

// The worker goes on without waiting for it.
void HostedRank::Retire() {
  if (!retired_.exchange(true)) options_.follower->Abandon(options_.group.get());
}

void HostedRank::KeepLaunches() { options_.group->only_launches.store(true); }

}  // namespace switchyard
