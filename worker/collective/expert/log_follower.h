// The thread of a worker that makes every step of a log: it enqueues the worker's part of each on
// one stream of the device, in the order of the log, and waits for no device unless kStepsAhead
// steps have not ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/collective/expert/group_counts.h"
#include "worker/collective/step_log.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class SharedLog;

// A group as the follower sees it. All calls come from the follower's thread.
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
};

class LogFollower {
 public:
  // Steps that are enqueued and have not ended.
  static constexpr std::size_t kStepsAhead = 16;

  // `device` outlives the follower. `spin`: how long the thread looks for the next step before it
  // sleeps. `counts` outlives the follower. Errors: those of MakeStream; kResourceExhausted
  // (TOO_MANY_SESSIONS) if the log has no place for another worker.
  static absl::StatusOr<std::unique_ptr<LogFollower>> Start(DeviceBackend* device,
                                                            std::unique_ptr<SharedLog> log,
                                                            Duration spin, GroupCounts* counts);
  // Waits for the steps that have begun.
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // Makes the steps of group `number` from now on. REQUIRES: no group has the number.
  void Add(std::uint32_t number, std::shared_ptr<FollowedGroup> group);
  [[nodiscard]] bool Has(std::uint32_t number) const;
  // Begins none of this group any more. Those that have begun keep it until they end.
  void Remove(const FollowedGroup* group);
  // A number for a group that this worker is the first of; StepLog::kNoGroup: none is free.
  [[nodiscard]] std::uint32_t TakeNumber();
  void GiveNumber(std::uint32_t number);
  [[nodiscard]] const SharedLog& log() const { return *log_; }

 private:
  // A step that has begun.
  struct Begun {
    std::shared_ptr<FollowedGroup> group;
    std::shared_ptr<const ExpertTable> experts;
    std::size_t event = 0;
    TimePoint since{};
  };

  LogFollower(std::unique_ptr<SharedLog> log, Duration spin, GroupCounts* counts);
  void Run();
  // Says that this worker lives. False: it was silent for too long, so that steps may be gone; all
  // its groups have failed, and it goes on behind the last step.
  bool Keep();
  void Make(const LoggedStep& step);
  absl::Status Enqueue(const LoggedStep& step, const std::shared_ptr<FollowedGroup>& group);
  void Count(const Begun& ended, const absl::Status& status);
  // Takes away the steps that the device has ended, and waits until at most `keep` are left.
  void Reap(std::size_t keep);
  void Fail(const std::shared_ptr<FollowedGroup>& group, const absl::Status& why);
  [[nodiscard]] std::vector<std::shared_ptr<FollowedGroup>> Groups() const;
  std::shared_ptr<FollowedGroup> Find(std::uint32_t number) const;

  const Duration spin_;
  GroupCounts* const counts_;
  const std::unique_ptr<SharedLog> log_;
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<DeviceEvent>, kStepsAhead> events_;

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<FollowedGroup>> groups_ SY_GUARDED_BY(mutex_);
  StepLog::Place place_;  // changed by the thread, with the lock; others read it with the lock

  // Used by the thread only.
  TimePoint kept_{};  // when it last said that it lives
  std::uint64_t next_ = 0;
  std::size_t next_event_ = 0;
  std::deque<Begun> begun_;

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard
