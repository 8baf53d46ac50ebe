// The workers that are members: their streams, incarnations, leases, and the epochs they hold.
//
//   stream opened --> Register --> live --(stream ends)--> disconnected --(grace ends)--> gone
//                                   | ^                         |
//                                   | `--- same incarnation ----'
//                                   `--(lease ends)--> gone; a stream that is still open is closed
//
// A worker id belongs to one incarnation at a time (I8). Another incarnation is refused while the
// first one's stream is open, and replaces it at once when that stream has ended; the replaced one
// is never admitted again. Not thread-safe.
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

#include "coordinator/events.h"
#include "coordinator/held_epochs.h"
#include "coordinator/options.h"
#include "coordinator/stream_ids.h"
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
  std::string endpoint;
  CapabilitySet capabilities;
  StreamId stream;  // 0: disconnected
  TimePoint last_message;
  TimePoint disconnected_at;
  std::uint64_t progress = 0;  // from its last heartbeat
  // It requested to leave; new plans do without it.
  bool leaving = false;
  bool goodbye_sent = false;
  HeldEpochs holds;

  [[nodiscard]] bool connected() const { return stream.value != 0; }
  // nullptr unless the worker holds exactly this plan: number and hash.
  [[nodiscard]] const Hold* Find(const EpochKey& key, const PlanHash& hash) const;
};

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
  // connected, kFailedPrecondition (INCARNATION) for one that was replaced. A member that registers
  // a second time on its stream is disconnected.
  absl::StatusOr<Member*> Join(StreamId stream, const Register& request, TimePoint now);
  // A message arrived on `stream`: renews the lease of its member and returns that. A stream on
  // which no worker registered is closed; then, and for an unknown stream, nullptr.
  Member* RenewLease(StreamId stream, TimePoint now);
  // Removes members whose lease or grace is over, and streams without Register. True when a member
  // was removed.
  bool Expire(TimePoint now);
  // Starts every lease and grace again, after this process was stalled.
  void RenewAll(TimePoint now);

  // Ascending by id, so that effects come in the same order in every run.
  [[nodiscard]] std::map<std::string, Member>& members() { return members_; }
  [[nodiscard]] const std::map<std::string, Member>& members() const { return members_; }
  // The member that `worker` is, in the same incarnation; nullptr when there is none.
  [[nodiscard]] Member* Find(const PlanWorker& worker);
  [[nodiscard]] const Member* Find(const PlanWorker& worker) const;
  // Connected workers that do not leave: those that a new plan may use. Ascending.
  [[nodiscard]] std::vector<std::string> CandidateIds() const;
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
  // Forgets the member and everything it held.
  void Remove(const std::string& id, absl::string_view why);
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
  // Bounded; the oldest go first.
  std::deque<std::pair<std::string, Incarnation>> replaced_;
};

// Errors: kInvalidArgument (BAD_REQUEST) naming the field.
absl::Status CheckRegister(const Register& request);

}  // namespace switchyard
