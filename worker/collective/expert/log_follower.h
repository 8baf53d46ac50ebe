// Makes a worker's part of every step of a log: enqueues it on one stream of the device, in the
// order of the log, and waits for no device unless kStepsAhead steps have not ended. A thread does
// it, or, step by step in the same order, a source of this process that shares the worker's rank.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/collective/expert/followed_group.h"
#include "worker/collective/expert/group_counts.h"
#include "worker/collective/expert/step_wakes.h"
#include "worker/collective/source_rank.h"
#include "worker/collective/step_log.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class SharedLog;

class LogFollower {
 public:
  // Steps that are enqueued and have not ended.
  static constexpr std::size_t kStepsAhead = 16;

  struct Options {
    DeviceBackend* device = nullptr;  // outlives the follower
    Duration spin{};                  // how long the thread looks for a step before it sleeps
    // How long a step of others is left to the source of this process before the worker makes it
    // without tokens.
    Duration idle_after = std::chrono::milliseconds(1);
    GroupCounts* counts = nullptr;  // outlives the follower
  };
  // Errors: those of MakeStream; kResourceExhausted (TOO_MANY_SESSIONS) if the log has no place for
  // another worker.
  static absl::StatusOr<std::shared_ptr<LogFollower>> Start(const Options& options,
                                                            std::unique_ptr<SharedLog> log);
  // As Stop.
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // Makes no step any more, and waits for those that have begun. Idempotent.
  void Stop();

  // Makes the steps of group `number` from now on. REQUIRES: no group has the number.
  void Add(std::uint32_t number, std::shared_ptr<FollowedGroup> group);
  [[nodiscard]] bool Has(std::uint32_t number) const;
  // The number of a group that was added; kNoGroup: it is not there any more.
  [[nodiscard]] std::uint32_t NumberOf(const FollowedGroup* group) const;
  // Begins none of this group any more. Those that have begun keep it until they end.
  void Remove(const FollowedGroup* group);
  // A number for a group that this worker is the first of; StepLog::kNoGroup: none is free.
  [[nodiscard]] std::uint32_t TakeNumber();
  void GiveNumber(std::uint32_t number);
  [[nodiscard]] const SharedLog& log() const { return *log_; }

  // For a source of this process: SourceRank::Use in the group, which is one of `number`.
  absl::Status Use(FollowedGroup* group, absl::FunctionRef<absl::Status(RankTurn&)> work);
  // The source of this process has left the group: it is waited for no longer, nor is the end of a
  // launch of it.
  void Abandon(FollowedGroup* group);
  // Called when steps have ended.
  StepWakes& wakes() { return wakes_; }

 private:
  class Turn;
  // A step that has begun.
  struct Begun {
    std::shared_ptr<FollowedGroup> group;
    std::shared_ptr<const ExpertTable> experts;
    std::shared_ptr<const RecordedSteps> graph = {};  // of a launch
    std::size_t event = 0;
    TimePoint since{};
  };

  // A graph that is being launched.
  struct Launch {
    std::shared_ptr<FollowedGroup> group;
    std::shared_ptr<const RecordedSteps> graph;
    TimePoint until;
  };

  LogFollower(const Options& options, std::unique_ptr<SharedLog> log);
  void Run();
  // Functions with turn_ are for whoever has the turn.
  // Says that this worker lives. False: it was silent for too long, so that steps may be gone; all
  // its groups have failed, and it goes on behind the last step.
  bool Keep() SY_REQUIRES(turn_);
  void Advance() SY_REQUIRES(turn_);
  // The step that is next in the log, without tokens.
  void MakeNext(const LoggedStep& step) SY_REQUIRES(turn_);
  void Pass() SY_REQUIRES(turn_);
  // Whether the step, the next one, is left to the source that may join it, counted from when this
  // was first asked: for as long as the group waits, which sets `waits`, or for a millisecond.
  bool IsLeft(const LoggedStep& step, bool* waits = nullptr) SY_REQUIRES(turn_);
  absl::StatusOr<std::uint64_t> MakeFor(FollowedGroup* group, const LoggedStep& wanted,
                                        const SourcePart& part, TimePoint until) SY_REQUIRES(turn_);
  struct Found {
    LoggedStep step;
    std::shared_ptr<FollowedGroup> group;  // of the caller
  };
  // Makes the steps before the next one that is the caller's to look at: a step that `is_own`, or
  // a launch of its group; or appends `wanted`. Nothing of it is made.
  absl::StatusOr<Found> FindOwn(const FollowedGroup* group, const LoggedStep& wanted,
                                absl::FunctionRef<bool(const LoggedStep&)> is_own, TimePoint until)
      SY_REQUIRES(turn_);
  // The next step, or `wanted`, appended. Not set: look again.
  absl::StatusOr<std::optional<LoggedStep>> Look(const LoggedStep& wanted) SY_REQUIRES(turn_);
  // The next step is left to a source of this process, perhaps to the one that is in this call.
  absl::Status WaitForTurn(bool waits, TimePoint until) SY_REQUIRES(turn_);
  // Nobody launches, and the stream has room.
  absl::Status WaitForRoom(TimePoint until) SY_REQUIRES(turn_);
  // `part` of this rank in `step`, the next one, with its experts.
  absl::Status Make(const LoggedStep& step, const std::shared_ptr<FollowedGroup>& group,
                    ExchangeStep part) SY_REQUIRES(turn_);
  absl::Status Enqueue(const LoggedStep& step, const std::shared_ptr<FollowedGroup>& group,
                       ExchangeStep part) SY_REQUIRES(turn_);
  // The last call of the stream is followed until it has ended.
  absl::Status Follow(Begun begun) SY_REQUIRES(turn_);
  // Takes away the steps that the device has ended. True if no more than `keep` are left.
  bool Reap(std::size_t keep) SY_REQUIRES(turn_);
  // log_follower_launches.cc
  absl::Status Record(FollowedGroup* group, void* capturing, const LoggedStep& step,
                      ExchangeStep part, RecordedSteps* graph) SY_REQUIRES(turn_);
  absl::Status BeginLaunch(FollowedGroup* group, const std::shared_ptr<const RecordedSteps>& graph,
                           const LoggedStep& wanted, void* foreign, TimePoint until)
      SY_REQUIRES(turn_);
  absl::StatusOr<std::uint64_t> EndLaunch(FollowedGroup* group, void* foreign) SY_REQUIRES(turn_);
  void LookForLateLaunch() SY_REQUIRES(turn_);
  void Count(const Begun& ended, const absl::Status& status);
  void Fail(const std::shared_ptr<FollowedGroup>& group, const absl::Status& why);
  [[nodiscard]] std::vector<std::shared_ptr<FollowedGroup>> Groups() const;
  std::shared_ptr<FollowedGroup> Find(std::uint32_t number) const;

  const Options options_;
  const std::unique_ptr<SharedLog> log_;
  StepWakes wakes_;  // before the stream, which calls it
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<DeviceEvent>, kStepsAhead> events_;

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<FollowedGroup>> groups_ SY_GUARDED_BY(mutex_);
  StepLog::Place place_;  // changed with both mutexes; read with either

  // Whoever makes a step has it: the thread, or a source of this process. Before mutex_.
  Mutex turn_;
  CondVar moved_;                          // waits that let others have the turn
  std::atomic<std::uint32_t> callers_{0};  // that want the turn; the thread lets them go first
  std::atomic<std::uint64_t> next_{0};     // written with the turn
  TimePoint kept_ SY_GUARDED_BY(turn_){};  // when it last said that it lives
  std::uint64_t seen_ SY_GUARDED_BY(turn_) = ~std::uint64_t{0};  // the last step of IsLeft
  TimePoint seen_at_ SY_GUARDED_BY(turn_){};
  std::size_t next_event_ SY_GUARDED_BY(turn_) = 0;
  std::deque<Begun> begun_ SY_GUARDED_BY(turn_);
  std::optional<Launch> launch_ SY_GUARDED_BY(turn_);
  bool ended_ SY_GUARDED_BY(turn_) = false;

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard
