// The worker's end of the control stream, sans I/O: events in, effects out.
//
//   PREPARE  -> staging --staged--> prepared --COMMIT--> committed --RETIRE--> retiring
//   --unbound-->
//                  |                   |                                                  (dropped)
//                  `--failed: NACK     `--ABORT--> (dropped)
//
// At most two epochs of one deployment are resident, so that the old epoch serves while the new one
// loads. A plan is staged only if its hash is the one that PREPARE names and if the plan contains
// this very process; it is activated only under that hash (I3). An epoch number is never used for a
// second plan (I10). Serving continues while the coordinator is unreachable; on reconnection,
// Register lists the epochs that this worker holds.
//
// The agent never waits: work that takes time is an effect, and its completion is an event. This
// makes every interleaving reproducible in tests and in the simulation. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/rng.h"
#include "worker/agent/agent_events.h"
#include "worker/agent/agent_options.h"

namespace switchyard {

class Agent {
 public:
  // `rng` must outlive the agent. It spreads reconnections. The first dial is due immediately.
  Agent(AgentOptions options, Rng* rng, TimePoint now);

  // Handles one event. Returns the effects to perform, in this order. `now` must never decrease.
  // After AgentFinished, every event is ignored.
  std::vector<AgentEffect> Step(const AgentEvent& event, TimePoint now);
  // The time at which the next AgentTick is due; TimePoint::max() after AgentFinished. Changes with
  // every Step.
  [[nodiscard]] TimePoint NextDeadline() const;

  [[nodiscard]] bool registered() const { return registered_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] const absl::Status& last_stream_end() const { return last_stream_end_; }
  // The epochs that Register reports: prepared, committed and retiring ones. Epochs that are still
  // being staged are not included, because the coordinator must not commit them yet.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;

 private:
  enum class State { kStaging, kFailed, kPrepared, kCommitted, kRetiring };
  struct Held {
    PlanHash hash;
    std::uint64_t nonce = 0;
    State state = State::kStaging;
    absl::Status error;  // set in kFailed; answers a repeated PREPARE without another attempt
    GrantKeys grant_keys;
  };

  // Inputs, see agent_events.h. Events of an earlier connection are ignored.
  void On(const ChannelUp& event);
  void On(const ChannelMessage& event);
  void On(const ChannelDown& event);
  void On(const EpochStaged& event);
  void On(const EpochUnbound& event);
  void On(const LeaveRequested& event);
  void On(const AgentTick& event);

  // Messages of the coordinator. Each can be a repetition and is answered again.
  void OnMessage(const Registered& message);
  void OnMessage(const Prepare& message);
  void OnMessage(const Commit& message);
  void OnMessage(const Abort& message);
  void OnMessage(const Retire& message);
  void OnMessage(const Goodbye& message);

  // Checks that the plan is intact, valid and meant for this process.
  [[nodiscard]] absl::Status CheckPrepare(const Prepare& prepare) const;
  // Answers a PREPARE of an epoch that this agent has seen. False if the epoch is new. Makes
  // PREPARE idempotent, because the coordinator repeats it after a reconnection.
  bool AnswerKnown(const EpochKey& key, const Prepare& prepare);
  // Refuses a PREPARE and logs the reason.
  void Nack(const Prepare& prepare, const absl::Status& error);
  // Reports a line about an epoch; with the reason and the ids of `why`, if it is an error.
  void Say(LogLevel level, const EpochKey& key, std::string text,
           const absl::Status& why = absl::OkStatus());
  // Reports every ten seconds how far the epochs are that are loaded.
  void LogStaging(const Heartbeat& heartbeat);
  // Those of the epochs that sources may be bound to.
  [[nodiscard]] std::vector<DeploymentKeys> HeldKeys() const;
  // Forgets an epoch here and in the runtime.
  void Drop(const EpochKey& key);
  // Sends `message`, or discards it if no registered stream exists.
  void Send(WorkerMessage message);
  // Schedules the next dial with exponential backoff and jitter.
  void ScheduleDial();
  // The part of a log line that says what this worker takes with it if it ends now; empty: nothing.
  [[nodiscard]] std::string Lost() const;
  // When to end although the coordinator has not said so. REQUIRES: leaving_since_.
  [[nodiscard]] TimePoint LeaveBy() const;
  // Ends the agent; every later event is ignored.
  void Finish(absl::Status why);
  [[nodiscard]] Held* Find(const EpochKey& key);

  const AgentOptions options_;
  Rng* const rng_;
  TimePoint now_;
  std::vector<AgentEffect> out_;
  bool in_use_ = false;  // as the last tick said

  DialId dial_;  // the current connection; 0 while waiting to dial
  std::uint64_t last_dial_ = 0;
  bool up_ = false;          // the coordinator has been reached on dial_
  bool registered_ = false;  // it has answered Register
  TimePoint dialled_at_;
  TimePoint dial_at_;
  int failed_dials_ = 0;  // since the last registration
  absl::Status last_stream_end_;

  Duration lease_ttl_{};
  TraceSettings tracing_;  // as last reported
  TimePoint next_heartbeat_;
  TimePoint next_line_;  // of LogStaging
  TimePoint registered_since_;
  TimePoint unregistered_since_;
  std::optional<TimePoint> leaving_since_;
  bool finished_ = false;

  std::map<EpochKey, Held> epochs_;
  // The highest epoch number that was staged, by deployment. Survives the epoch itself, so that a
  // delayed PREPARE cannot bring back a number that was dropped.
  std::map<std::string, Epoch> highest_;
};

}  // namespace switchyard
