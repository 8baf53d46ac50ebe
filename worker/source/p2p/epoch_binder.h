// Keeps a session attached to the workers of its plan, and moves it from epoch to epoch.
//
//   OnPlan(e+1): attach new workers, Bind(e+1) on the others -> all have answered -> switch between
//   two steps -> last step of e has ended -> Release(e), close what no plan holds any more.
//
// Where the coming epoch's rows need larger slots than an attachment has (a layer was resolved
// again to a wider wire dtype), its worker counts as new: steps of e end on the old rings, those of
// e+1 begin on the larger ones. Slots never shrink.
//
// An attachment that is lost is made again with back-off while a plan that is in use names its
// worker; a worker that is really gone leaves with the next plan. Attach and Bind need no
// coordinator. Sans-I/O but for the seams (SessionChannel, Transport); one thread; time comes in as
// an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/mutant.h"
#include "core/rng.h"
#include "worker/source/own_experts.h"
#include "worker/source/p2p/attachment.h"
#include "worker/source/p2p/bound_plan.h"
#include "worker/source/session_channel.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct BinderOptions {
  SessionChannel* channel = nullptr;
  Transport* transport = nullptr;
  const DeviceBackend* device = nullptr;  // its codecs must take the plan's wire dtypes
  Rng* rng = nullptr;                     // jitter of retries
  SessionEvents* events = nullptr;
  SourceSession* session = nullptr;   // Attachment::session
  Incarnation incarnation;            // of this process
  OwnExperts* own_experts = nullptr;  // gateway; told of releases
  std::string own_worker_id;          // gateway: experts of this worker are called directly
  SessionGrant grant;
  MutantId mutant = MutantId::kNone;
  TransportChoice transport_choice = TransportChoice::kAuto;
  std::uint32_t pairs = 8;
  std::uint32_t chunk_rows = 0;  // a slot holds a chunk of so many rows
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
  // How long steps may still wait for a worker that the committed plan no longer holds.
  Duration planned_out_grace = std::chrono::seconds(2);
  // Told when an attachment is lost, before its link is closed: its outstanding chunks fail.
  std::function<void(Attachment&, const absl::Status&)> on_down;
};

class EpochBinder {
 public:
  explicit EpochBinder(BinderOptions options);
  ~EpochBinder();

  // Begins to attach for the grant's plan.
  absl::Status Start(TimePoint now);
  void OnPlan(const PlanUpdate& news, TimePoint now);
  void OnAttached(const AttachedEvent& event, TimePoint now);
  void OnBound(const BoundEvent& event, TimePoint now);
  void OnAttachEnded(const AttachEndedEvent& event, TimePoint now);
  // The link failed, or its credits are lost.
  void Lose(Attachment& attachment, const absl::Status& why, TimePoint now);
  // Retries, switches, releases, closes. True when anything changed.
  bool Poll(TimePoint now);
  void CloseAll();

  // nullptr until every worker of the first plan is attached. A binding lives while it has steps.
  [[nodiscard]] BoundPlan* current() const { return current_.get(); }
  // Why the session cannot open: an answer that no retry will change. OK while it may.
  [[nodiscard]] const absl::Status& fatal() const { return fatal_; }
  // The last thing that went wrong with an attachment, for an open that runs out of time.
  [[nodiscard]] const absl::Status& last_error() const { return last_error_; }
  // Why the coming epoch has an attachment that is down; OK when none is, or no epoch is coming.
  [[nodiscard]] absl::Status coming_error() const;
  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  [[nodiscard]] const std::vector<std::unique_ptr<Attachment>>& attachments() const {
    return attachments_;
  }

 private:
  Attachment* FindBySerial(std::uint64_t serial) const;
  Attachment* FindOrAdd(const BoundPlan& binding, std::size_t ordinal);
  void DropNext();
  void ReleaseAt(Attachment& attachment, Epoch epoch) const;
  [[nodiscard]] bool Knows(Epoch epoch) const;
  [[nodiscard]] Attachment* SuccessorOf(const Attachment& ended) const;
  void Adopt(std::unique_ptr<BoundPlan> next, TimePoint now);
  void StartAttach(Attachment& attachment, TimePoint now);
  absl::Status ConnectLink(Attachment& attachment, const AttachGrant& grant) const;
  void BindNewer(Attachment& attachment, Epoch attached);
  void MarkBound(Attachment& attachment, Epoch epoch);
  bool Switch(TimePoint now);
  bool ReleaseEnded();
  bool LosePlannedOut(TimePoint now);
  void CloseUnused();
  [[nodiscard]] bool Uses(const BoundPlan* binding, const Attachment& attachment) const;
  [[nodiscard]] bool IsPlannedOut(const Attachment& attachment) const;
  [[nodiscard]] bool InUse(const Attachment& attachment) const;

  BinderOptions options_;
  std::uint64_t last_serial_ = 0;
  std::vector<std::unique_ptr<Attachment>> attachments_;
  std::unique_ptr<BoundPlan> current_;
  std::unique_ptr<BoundPlan> next_;
  std::vector<std::unique_ptr<BoundPlan>> ending_;  // older epochs with steps in flight
  TimePoint switched_at_{};                         // when the newest of them was left
  absl::Status fatal_;
  absl::Status last_error_;
};

}  // namespace switchyard
