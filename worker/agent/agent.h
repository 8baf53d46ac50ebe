// The worker's end of the control stream, sans I/O: events in, effects out.
//
//   PREPARE  -> staging --staged--> prepared --COMMIT--> committed --RETIRE--> retiring
//   --unbound-->
//                  |                   |                                                  (dropped)
//                  `--failed: NACK     `--ABORT--> (dropped)
//
// At most two epochs of one deployment are resident. A plan is staged only when its hash is the one
// that PREPARE names and this very process is in it, and activated only under that hash (I3); an
// epoch number that was seen is never taken for another plan (I10). While the coordinator is away
// everything goes on: on its return Register says what is held. Not thread-safe.
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
  // `rng` outlives it. The first dial is due at once.
  Agent(AgentOptions options, Rng* rng, TimePoint now);

  // `now` never goes back.
  std::vector<AgentEffect> Step(const AgentEvent& event, TimePoint now);
  // When AgentTick is due.
  [[nodiscard]] TimePoint NextDeadline() const;

  [[nodiscard]] bool registered() const { return registered_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] const absl::Status& last_stream_end() const { return last_stream_end_; }
  // What Register would say.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;

 private:
  enum class State { kStaging, kFailed, kPrepared, kCommitted, kRetiring };
  struct Held {
    PlanHash hash;
    std::uint64_t nonce = 0;
    State state = State::kStaging;
    absl::Status error;  // of kFailed; kept to answer a repeated PREPARE
  };

  void On(const ChannelUp& event);
  void On(const ChannelMessage& event);
  void On(const ChannelDown& event);
  void On(const EpochStaged& event);
  void On(const EpochUnbound& event);
  void On(const LeaveAsked& event);
  void On(const AgentTick& event);

  void OnMessage(const Registered& message);
  void OnMessage(const Prepare& message);
  void OnMessage(const Commit& message);
  void OnMessage(const Abort& message);
  void OnMessage(const Retire& message);
  void OnMessage(const Goodbye& message);

  [[nodiscard]] absl::Status CheckPrepare(const Prepare& prepare) const;
  // True when the epoch is known here and has been answered.
  bool AnswerKnown(const EpochKey& key, const Prepare& prepare);
  void Nack(const Prepare& prepare, const absl::Status& error);
  void Drop(const EpochKey& key);
  void Send(WorkerMessage message);
  void ScheduleDial();
  void Finish(absl::Status why);
  [[nodiscard]] Held* Find(const EpochKey& key);

  const AgentOptions options_;
  Rng* const rng_;
  TimePoint now_;
  std::vector<AgentEffect> out_;

  DialId dial_;  // the current one; none: waiting to dial
  std::uint64_t last_dial_ = 0;
  bool up_ = false;
  bool registered_ = false;
  TimePoint dialled_at_;
  TimePoint dial_at_;
  int failed_dials_ = 0;  // in a row
  absl::Status last_stream_end_;

  Duration lease_ttl_{};
  TimePoint next_heartbeat_;
  TimePoint unregistered_since_;
  std::optional<TimePoint> leaving_since_;
  bool finished_ = false;

  std::map<EpochKey, Held> epochs_;
  std::map<std::string, Epoch> highest_;  // number seen, by deployment
};

}  // namespace switchyard
