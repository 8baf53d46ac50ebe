// The workers that are members: their streams, incarnations, leases, and the epochs they hold.
//
//   stream opened --> Register --> live --(stream ends)--> disconnected --(grace ends)--> gone
//                                   | ^                         |
//                                   | `--- same incarnation ----'
//                                   `--(lease ends)--> gone; a stream that is still open is closed
//
// A worker id belongs to one incarnation at a time (I8). Another incarnation is refused while the
// first one's stream is open, and replaces it at once when that stream has ended; the replaced one
// is never admitted again. The incarnation is public, so that the same one comes back only with the
// secret of its first Register.
//
// A worker that joins is dialed at its endpoint before a plan may use it: its own stream only shows
// that it reaches the coordinator, and sources have to reach it. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "coordinator/members/held_epochs.h"
#include "coordinator/outbox.h"
#include "coordinator/progress/staging_meters.h"
#include "coordinator/spec/options.h"
#include "coordinator/store/worker_duty.h"
#include "coordinator/threads/stream_ids.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/capability.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/plan.h"

namespace switchyard {

// A worker that has registered and whose lease or grace is not over.
struct Member {
  std::string id;
  Incarnation incarnation;
  LifeSecret secret;
  std::string endpoint;
  std::string pool;     // empty: none
  std::string release;  // of its program; empty: it does not say
  CapabilitySet capabilities;
  bool checks_opener = false;  // of sessions
  StreamId stream;             // 0: disconnected
  TimePoint last_message;
  TimePoint disconnected_at;
  Heartbeat heartbeat;  // the last one, without its `staging` and `load`
  StagingMeters staging;
  TimePoint moved_at;  // when its data thread was last seen to turn
  // Why the worker is stuck; empty: it is not. And when a reason to say so was last seen.
  std::string stuck;
  TimePoint stuck_at;
  // It has answered at its endpoint, also to another worker if there was one, or sources use it
  // already.
  bool reached = false;
  bool dialing = false;  // the answer to a dial is awaited
  std::size_t dials = 0;
  std::vector<DialWitness> witnesses;  // of the last dial
  bool witnessed = false;              // one of them was reached itself when the answer came
  TimePoint dial_due;                  // the next dial, if it is neither reached nor being dialed
  std::string unreachable;             // why a dial failed; empty: none has, or it is reached
  // It requested to leave; new plans do without it.
  bool leaving = false;
  bool goodbye_sent = false;
  WorkerDuty duty = WorkerDuty::kServe;
  HeldEpochs holds;
  std::vector<DeploymentKeys> grant_keys;  // as it registered

  [[nodiscard]] bool connected() const { return stream.value != 0; }
  // A new plan may use it.
  [[nodiscard]] bool usable() const { return connected() && stays() && stuck.empty() && reached; }
  // It is not on its way out.
  [[nodiscard]] bool stays() const { return !leaving && duty != WorkerDuty::kDraining; }
  // Why no plan uses it although it is connected; empty: nothing is wrong.
  [[nodiscard]] std::string Problem() const;
  // Says what becomes of it where a plan that used it is followed by one that does not: "is
  // drained".
  [[nodiscard]] const char* WayOut() const;
  // nullptr unless the worker holds exactly this plan: number and hash.
  [[nodiscard]] const Hold* Find(const EpochKey& key, const PlanHash& hash) const;
  // Those of `grant_keys` that belong to the deployment.
  [[nodiscard]] GrantKeys KeysOf(const std::string& deployment) const;
};

// Whether a deployment that names `pools` may use workers of `pool`.
[[nodiscard]] bool IsInPools(const std::vector<std::string>& pools, const std::string& pool);

class Membership {
 public:
  // `options` and `out` outlive it.
  Membership(const CoordinatorOptions* options, Outbox* out) : options_(options), out_(out) {}

  // Closes the stream at once when max_streams are open.
  void OpenStream(StreamId stream, TimePoint now);
  // True when a member lost its stream.
  bool CloseStream(StreamId stream, TimePoint now);
  // Returns the new or returning member, holding what it reports. On an error the stream is closed:
  // kInvalidArgument (BAD_REQUEST), kAlreadyExists (LEASE_HELD) while another incarnation is
  // connected and for a known one with another secret, kFailedPrecondition (INCARNATION) for one
  // that was replaced. A member that registers a second time on its stream is disconnected.
  absl::StatusOr<Member*> Join(StreamId stream, const Register& request, TimePoint now);
  // A message arrived on `stream`: renews the lease of its member and returns that. A stream on
  // which no worker registered is closed; then, and for an unknown stream, nullptr.
  Member* RenewLease(StreamId stream, TimePoint now);
  void OnHeartbeat(Member& member, const Heartbeat& heartbeat, TimePoint now);
  // A dial may let the member be used, or give a new reason why it cannot be.
  enum class DialOutcome { kNothingNew, kReached, kUnreachable };
  // Answers to dials of former incarnations and endpoints are dropped.
  DialOutcome OnDialed(const WorkerDialed& dialed, TimePoint now);
  // Removes members whose lease or grace is over, and streams without Register. True when a member
  // was removed.
  bool Expire(TimePoint now);
  // Finds the members whose lease is renewed while their work does not move. True when a member
  // became stuck or is so no longer.
  bool JudgeProgress(TimePoint now);
  // Dials again the members whose last dial failed.
  void RepeatDials(TimePoint now);
  // Starts every lease and grace again, after this process was stalled.
  void RenewAll(TimePoint now);

  // Ascending by id, so that effects come in the same order in every run.
  [[nodiscard]] std::map<std::string, Member>& members() { return members_; }
  [[nodiscard]] const std::map<std::string, Member>& members() const { return members_; }
  // The member that `worker` is, in the same incarnation; nullptr when there is none.
  [[nodiscard]] Member* Find(const PlanWorker& worker);
  [[nodiscard]] const Member* Find(const PlanWorker& worker) const;
  // Why plans that follow `serving` (null: none) do without a member of `pools` (empty: all), for
  // each of them: "w3: unreachable: ...". Ascending.
  [[nodiscard]] std::vector<std::string> Problems(const Plan* serving,
                                                  const std::vector<std::string>& pools) const;
  // The highest epoch of the deployment that any member holds; 0: none.
  [[nodiscard]] Epoch HighestHeld(const std::string& deployment) const;
  // The members of `pools` (empty: all) that a plan which follows `serving` may use. Ascending.
  [[nodiscard]] std::vector<std::string> CandidateIds(const Plan* serving,
                                                      const std::vector<std::string>& pools) const;
  // Those that the store has.
  void SetDuties(WorkerDuties duties) { duties_ = std::move(duties); }
  void SetDuty(const std::string& worker, WorkerDuty duty);
  [[nodiscard]] const WorkerDuties& duties() const { return duties_; }
  // Does nothing while the member is disconnected: it reports what it holds when it is back.
  void Send(const Member& member, CoordinatorMessage message);
  [[nodiscard]] WorkerState StateOf(const Member& member) const;

 private:
  struct Stream {
    TimePoint opened_at;
    std::string member;  // empty: no Register so far
  };

  // Whether `request` may become the member; `known` is the present one, or null.
  [[nodiscard]] absl::Status Admit(const Member* known, const Register& request);
  void Dial(Member& member);
  // At most two other members; others in the next dial, as long as there are others.
  [[nodiscard]] std::vector<DialWitness> WitnessesFor(const Member& member) const;
  [[nodiscard]] bool IsReached(absl::string_view id) const;
  // Dials again, unless plans use them, the members that no reached one has tried: `witness`, which
  // has come or was reached just now, can.
  void DialUnwitnessed(const Member& witness);
  // Judges the member by an answer to its dial: OK where nobody but a witness that is not reached
  // itself says no.
  [[nodiscard]] absl::Status Judge(const WorkerDialed& dialed) const;
  // Empty while its work moves.
  [[nodiscard]] std::string WhyStuck(const Member& member, TimePoint now) const;
  // Forgets the member and everything it held.
  void Remove(const std::string& id, absl::string_view why, LogLevel level = LogLevel::kWarn);
  void Close(StreamId stream, const absl::Status& why);
  // The member has no stream any more: its grace starts, or, after Goodbye, it is removed. Does
  // nothing for an empty id.
  void Disconnect(const std::string& id, TimePoint now);
  // Refuses this incarnation from now on.
  void Ban(const std::string& id, Incarnation incarnation);

  const CoordinatorOptions* options_;
  Outbox* out_;
  std::map<StreamId, Stream> streams_;
  std::map<std::string, Member> members_;
  WorkerDuties duties_;
  // Bounded; the oldest go first.
  std::deque<std::pair<std::string, Incarnation>> replaced_;
};

}  // namespace switchyard
