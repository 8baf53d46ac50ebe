// Keeps a session attached to the workers of its plan, and moves it from epoch to epoch.
//
//   OnPlan(e+1): attach new workers, Bind(e+1) on the others -> all have answered -> switch between
//   two steps -> last step of e has ended -> Release(e), close what no plan uses any more.
//
// Steps of e end on e, also at workers that e+1 no longer has: these stay until they have answered.
// Only a worker that the coordinator has lost is given up earlier, since it may never answer. Each
// worker knows from Attach and Bind how long the session's steps can take, and keeps e so long.
//
// Where the rows of the coming epoch need larger slots than an attachment has (a layer was resolved
// again to a wider wire dtype), its worker counts as new: steps of e end on the old rings, those of
// e+1 begin on the larger ones. Slots never shrink.
//
// A plan of another model (other weights or another shape) ends the session: the caller's rows, its
// caches and the sizes of its buffers belong to the model that it opened. Steps in flight end on
// the old epoch, which is then released; new ones get MODEL_CHANGED. Where the deployment keeps the
// former model for a time, the session goes on with it, at most so long: until the coordinator says
// that it is kept no longer, or a worker of it is lost, for which no plan comes any more.
//
// An attachment that is lost is made again with back-off while a plan that is in use names its
// worker; a worker that is really gone leaves with the next plan. Attach and Bind need no
// coordinator. No I/O but through the seams (SessionChannel, Transport); one thread; time comes in
// as an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "worker/routing/own_experts.h"
#include "worker/source/p2p/attachment.h"
#include "worker/source/p2p/bound_plan.h"
#include "worker/source/session_channel.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct BinderOptions {
  SessionChannel* channel = nullptr;
  Transport* transport = nullptr;
  const DeviceBackend* device = nullptr;   // its codecs must take the plan's wire dtypes
  std::shared_ptr<DeviceBackend> tensors;  // reaches the rings, if it may encode and sum; else null
  Rng* rng = nullptr;                      // jitter of retries
  std::shared_ptr<AttachEventQueue> events;  // for the channel's threads and the transport's
  P2pRunner* runner = nullptr;               // Attachment::runner
  Incarnation incarnation;                   // of this process
  OwnExperts* own_experts = nullptr;         // gateway; binds and releases its epochs
  std::string own_worker_id;                 // gateway: experts of this worker are called directly
  SessionGrant grant;
  TransportChoice transport_choice = TransportChoice::kAuto;
  std::uint32_t credits = 8;     // of each attachment
  std::uint32_t chunk_rows = 0;  // a slot holds a chunk of this many rows
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
  // How long after a switch steps may still wait for a worker that the coordinator has lost.
  Duration lost_grace = std::chrono::seconds(2);
  // Called when an attachment is lost, before its link is closed: its outstanding chunks fail.
  std::function<void(Attachment&, const absl::Status&)> on_down;
};

class EpochBinder {
 public:
  explicit EpochBinder(BinderOptions options);
  ~EpochBinder();

  // Begins to attach for the grant's plan. Errors as MakeBoundPlan.
  absl::Status Start(TimePoint now);
  // Ignored unless newer than every plan before; a plan that cannot be bound is only remembered as
  // last_error.
  void OnPlan(const PlanUpdate& update, TimePoint now);
  // Events of attachments, in any order; those of an older life are dropped.
  void OnMemoryMade(MemoryMadeEvent event, TimePoint now);
  void OnAttached(const AttachedEvent& event, TimePoint now);
  void OnPeerMet(const PeerMetEvent& event, TimePoint now);
  void OnBound(const BoundEvent& event, TimePoint now);
  void OnAttachEnded(const AttachEndedEvent& event, TimePoint now);
  // The link failed, or its credits are lost.
  void Lose(Attachment& attachment, const absl::Status& why, TimePoint now);
  // A step with this deadline has begun. If it is the longest so far, the workers learn of it.
  void OnStepDeadline(Duration deadline);
  // Retries, switches, releases, closes. True when anything changed.
  bool Poll(TimePoint now);
  void CloseAll();

  // nullptr until every worker of the first plan is attached. A bound plan lives while it has
  // steps.
  [[nodiscard]] BoundPlan* current() const { return current_.get(); }
  // Why the session cannot open or go on: an answer that no retry will change. OK while retries may
  // help.
  [[nodiscard]] const absl::Status& fatal() const { return fatal_; }
  // The last thing that went wrong with an attachment, for an open that runs out of time.
  [[nodiscard]] const absl::Status& last_error() const { return last_error_; }
  // Why the coming epoch has an attachment that is down; OK when none is, or no epoch is coming.
  [[nodiscard]] absl::Status coming_error() const;
  // max() when nothing is due.
  [[nodiscard]] TimePoint NextDeadline() const;
  [[nodiscard]] const std::vector<std::unique_ptr<Attachment>>& attachments() const {
    return attachments_;
  }

 private:
  // The attachment whose current life has this serial; nullptr for an event of an older life.
  Attachment* FindBySerial(std::uint64_t serial) const;
  // An attachment to the plan's worker `ordinal` with large enough slots, made if there is none.
  Attachment* FindOrAdd(const BoundPlan& bound, std::size_t ordinal);
  // Once the time of the former model is over, leaves the current plan for good. Its steps end on
  // it.
  bool EndFormerModel(TimePoint now);
  // Forgets the coming plan, and releases its epoch where it was bound.
  void DropNext();
  // Lets a worker free `epoch` as far as this session is concerned.
  void ReleaseAt(Attachment& attachment, Epoch epoch) const;
  // Whether any plan of this session has this epoch.
  [[nodiscard]] bool Knows(Epoch epoch) const;
  // The attachment that goes on with the same worker on larger slots; nullptr when there is none.
  [[nodiscard]] Attachment* SuccessorOf(const Attachment& ended) const;
  // Makes `next` the coming plan and begins to attach and bind for it.
  void Adopt(std::unique_ptr<BoundPlan> next, TimePoint now);
  // The steps by which a kDown attachment gets a new life (Attachment::State), each done apart from
  // this thread where it takes long: the link's memory; link and offer; the worker's ring.
  void StartAttach(Attachment& attachment, TimePoint now);
  void SendAttach(Attachment& attachment, TimePoint now);
  void ConnectLink(Attachment& attachment, const absl::Status& rings_met, TimePoint now);
  void LoseAttaching(Attachment& attachment, const absl::Status& why, TimePoint now);
  [[nodiscard]] LinkOptions LinkOptionsFor(Attachment& attachment) const;
  // Lets the device of the tensors reach where rows of a connected attachment lie.
  void LetDeviceReach(Attachment& attachment, const AttachGrant& grant, const absl::Status& met);
  // Checks the worker's ring against the request.
  [[nodiscard]] absl::Status CheckAttachGrant(const Attachment& attachment,
                                              const AttachGrant& grant) const;
  // Binds the coming epoch at the process's own experts, or schedules another attempt.
  void BindOwn(std::size_t ordinal, TimePoint now);
  // BindOwn where an attempt is due. True when there was one.
  bool RetryOwn(TimePoint now);
  // Doubles the attachment's back-off and sets the time of its next attempt.
  void ScheduleRetry(Attachment& attachment, TimePoint now) const;
  [[nodiscard]] BindRequest BindRequestFor(const BoundPlan& bound) const;
  // Binds the coming epoch on an attachment that was made for an older one.
  void BindNewer(Attachment& attachment, Epoch attached);
  // The worker serves `epoch` on this attachment from now on.
  void MarkBound(Attachment& attachment, Epoch epoch);
  // Makes the coming plan the current one when all of its workers have confirmed it.
  bool Switch(TimePoint now);
  // Releases older epochs without steps.
  bool ReleaseEnded();
  // Gives up workers that the coordinator has lost, once the grace after the switch is over.
  bool LoseDead(TimePoint now);
  // Closes attachments that no plan of this session uses.
  void CloseUnused();
  [[nodiscard]] bool Uses(const BoundPlan* bound, const Attachment& attachment) const;
  // Only an ending epoch uses the attachment, and the coordinator has lost its worker.
  [[nodiscard]] bool IsDead(const Attachment& attachment) const;
  [[nodiscard]] bool InUse(const Attachment& attachment) const;

  BinderOptions options_;
  std::uint64_t last_serial_ = 0;
  std::vector<std::unique_ptr<Attachment>> attachments_;
  std::unique_ptr<BoundPlan> current_;              // steps start on it
  std::unique_ptr<BoundPlan> next_;                 // coming: not all of its workers have bound it
  std::vector<std::unique_ptr<BoundPlan>> ending_;  // older epochs with steps in flight
  TimePoint switched_at_{};                         // when the newest of them was left
  Duration step_deadline_{};                        // the longest of the session's steps
  // The deployment serves another model than the session: until when this one is kept, and why the
  // session ends then.
  TimePoint model_kept_until_ = TimePoint::max();
  absl::Status model_change_;
  absl::Status fatal_;
  absl::Status last_error_;
};

}  // namespace switchyard
