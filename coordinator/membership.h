// Who is a worker here: streams, incarnations, leases, and which epochs each worker holds.
//
//   stream opened --> Register --> live --(stream ends)--> disconnected --(grace ends)--> gone
//                                   | ^                         |
//                                   | `--- same incarnation ----'
//                                   `--(lease ends)--> gone: a stream that is still open is closed
//
// A worker id belongs to one incarnation at a time (I8): another one is refused while the first is
// live, takes its place at once when its stream has ended, and the replaced one never comes back.
// Not thread-safe.
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

struct Member {
  std::string id;
  Incarnation incarnation;
  std::string endpoint;
  CapabilitySet capabilities;
  StreamId stream;  // none: disconnected
  TimePoint last_message;
  TimePoint disconnected_at;
  std::uint64_t progress = 0;
  bool leaving = false;
  bool goodbye_sent = false;
  HeldEpochs holds;

  [[nodiscard]] bool connected() const { return stream.value != 0; }
  // nullptr unless this very plan is held.
  [[nodiscard]] const Hold* Find(const EpochKey& key, const PlanHash& hash) const;
};

class Membership {
 public:
  // `options` and `out` outlive it.
  Membership(const CoordinatorOptions* options, Outbox* out) : options_(options), out_(out) {}

  // Closes the stream at once when there are too many.
  void OpenStream(StreamId stream, TimePoint now);
  // True when a member lost its stream.
  bool CloseStream(StreamId stream, TimePoint now);
  // The new or returning member; its holds are what it says it holds. Errors (the stream is closed
  // with them): kInvalidArgument (BAD_REQUEST), kAlreadyExists (LEASE_HELD), kFailedPrecondition
  // (INCARNATION).
  absl::StatusOr<Member*> Join(StreamId stream, const Register& request, TimePoint now);
  // The member that registered on `stream` and still owns it; its lease is renewed. Anybody else's
  // stream is closed, and nullptr comes back.
  Member* RenewLease(StreamId stream, TimePoint now);
  // Drops who is dead by `now`; true when a member went.
  bool Expire(TimePoint now);
  // After a stall of the coordinator's own: nobody is dead who could not be heard.
  void RenewAll(TimePoint now);

  [[nodiscard]] std::map<std::string, Member>& members() { return members_; }
  [[nodiscard]] const std::map<std::string, Member>& members() const { return members_; }
  // The member that `worker` is, in the same incarnation; nullptr when there is none.
  [[nodiscard]] Member* Find(const PlanWorker& worker);
  [[nodiscard]] const Member* Find(const PlanWorker& worker) const;
  // Connected workers that do not leave: those that a new plan may use. Ascending.
  [[nodiscard]] std::vector<std::string> CandidateIds() const;
  void Send(const Member& member, CoordinatorMessage message);
  [[nodiscard]] WorkerState StateOf(const Member& member) const;

 private:
  struct Stream {
    TimePoint opened_at;
    std::string member;  // empty: nobody has registered on it
  };

  [[nodiscard]] absl::Status Admit(const Member* known, const Register& request);
  void Remove(const std::string& id, absl::string_view why);
  void Close(StreamId stream, const absl::Status& why);
  void Retire(const std::string& id, Incarnation incarnation);

  const CoordinatorOptions* options_;
  Outbox* out_;
  std::map<StreamId, Stream> streams_;
  std::map<std::string, Member> members_;
  std::deque<std::pair<std::string, Incarnation>> replaced_;  // bounded; the oldest go first
};

// Errors: kInvalidArgument (BAD_REQUEST) naming the field.
absl::Status CheckRegister(const Register& request);

}  // namespace switchyard
