// A group as the follower of its log sees it.
//
// Whoever has the follower's turn calls ExpertsOf and OnFailed; the rest is thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/collective/step_log.h"
#include "worker/device/device_backend.h"
#include "worker/device/exchange.h"

namespace switchyard {

class FollowedGroup {
 public:
  virtual ~FollowedGroup() = default;
  [[nodiscard]] virtual Exchange& exchange() = 0;
  // This worker's experts of the step's layer and epoch, where their rows are counted, and how rows
  // travel.
  struct Experts {
    std::shared_ptr<const ExpertTable> table;    // keeps both
    std::atomic<std::uint32_t>* rows = nullptr;  // by slot; null: nowhere
    StepCodecs codecs{};                         // the group keeps them
  };
  // Errors: UNKNOWN_LAYER, STALE_EPOCH.
  virtual absl::StatusOr<Experts> ExpertsOf(const LoggedStep& step) = 0;
  // The group makes no step any more; once.
  virtual void OnFailed(const absl::Status& why) = 0;
  // How long its ranks wait for each other.
  [[nodiscard]] virtual Duration patience() const = 0;

  std::atomic<std::uint64_t> steps_made{0};
  std::atomic<bool> has_source{false};     // one of this process, which may join its steps
  std::atomic<bool> only_launches{false};  // as SourceRank::KeepLaunches
  std::atomic<bool> in_step{false};        // as GroupRequest
  // The last epoch that the source's steps had: LoggedStep::epoch.
  std::atomic<std::uint64_t> source_epoch{0};
};

}  // namespace switchyard
