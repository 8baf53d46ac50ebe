// The expert side of the data plane: attachments, committed epochs, frames in, results out.
//
//   transport --frames--> attachments (checked, copied) --pending--> a batch of one layer, epoch
//   and mode --stream of its class--> rows in the reply slots --event, headers--> transport
//
// Batches run on the device while the engine keeps polling: decode work on a stream of its own, so
// that it never waits behind the prefill batches that are queued. An attachment that is closed
// while a batch still reads its request or writes its reply keeps its rings until that batch ends.
//
// One thread owns it (expert_service.h); commands run between two polls, and its callbacks must not
// call it back. Poll waits for nothing and allocates nothing but for refusals. Time comes in as an
// argument.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/session_messages.h"
#include "worker/expert/counted_bytes.h"
#include "worker/expert/epoch_stager.h"
#include "worker/expert/expert_attachment.h"
#include "worker/expert/expert_batch.h"
#include "worker/expert/expert_engine_options.h"
#include "worker/expert/expert_lane.h"
#include "worker/expert/expert_stats.h"
#include "worker/transport/transport.h"

namespace switchyard {

// A device and its streams for one engine.
struct ExpertStreams {
  // `on_progress` as StreamOptions. Errors: those of MakeStream.
  static absl::StatusOr<ExpertStreams> Create(DeviceBackend* device,
                                              std::function<void()> on_progress);

  DeviceBackend* device = nullptr;
  std::array<std::unique_ptr<Stream>, 2> by_class;  // kDecode, kPrefill
};

class ExpertEngine final : private FrameSink {
 public:
  // `transport` and the streams' device outlive the engine.
  ExpertEngine(ExpertEngineOptions options, Transport* transport, ExpertStreams streams);
  ~ExpertEngine() override;
  ExpertEngine(const ExpertEngine&) = delete;
  ExpertEngine& operator=(const ExpertEngine&) = delete;

  // Sources may bind to the epoch from now on.
  void Activate(StagedEpoch staged);
  // No new bindings; `unbound` is called once, when none is left, at once for an unknown epoch. A
  // binding ends at the latest `retire_grace` and its source's longest step deadline after `now`.
  // An attachment that binds nothing then is closed (kFailedPrecondition, STALE_EPOCH).
  void Retire(absl::string_view deployment, Epoch epoch, TimePoint now,
              std::function<void()> unbound);
  // Ends all bindings within that time. Ignored unless the epoch is retiring.
  void ShortenRetire(absl::string_view deployment, Epoch epoch, TimePoint now, Duration within);
  // Ends the epoch's bindings and hands it out: freeing it takes too long here. Empty if unknown.
  StagedEpoch Drop(absl::string_view deployment, Epoch epoch);

  struct Admitted {
    std::shared_ptr<void> counted;  // AttachAhead::counted
    MoeShape shape;                 // of the epoch
  };
  // Counts the memory that Attach would take, and refuses what it would refuse, so that the memory
  // can be made on another thread meanwhile. Errors: those of CheckGrant; kFailedPrecondition
  // (STALE_EPOCH) unless that epoch and hash are committed and not retiring; kInvalidArgument
  // (BAD_REQUEST, MESSAGE_TOO_LARGE) for a ring that cannot be served, or is larger than the grant
  // has use for; kResourceExhausted (TOO_MANY_SESSIONS, OUT_OF_MEMORY).
  absl::StatusOr<Admitted> Admit(const AttachRequest& request);
  // Errors: those of Admit, which it calls unless `ahead` shows that this was done, and of
  // Link::Connect.
  absl::StatusOr<AttachGrant> Attach(const AttachRequest& request, AttachAhead ahead = {});
  // Errors: as Attach; kNotFound (UNKNOWN_SESSION) when there is no such attachment. Repeated for
  // what is bound, it succeeds also when the epoch is retiring.
  absl::Status Bind(AttachmentId attachment, const BindRequest& request);
  absl::Status Release(AttachmentId attachment, const ReleaseRequest& request);
  // For a source that has gone or is done. Does not call on_closed. Rings in use by a batch stay
  // until it has ended.
  void Close(AttachmentId attachment);

  // Takes frames in, starts batches, answers those that have ended, keeps the timers. True when it
  // did anything; otherwise the caller may sleep, until NextDeadline at the latest.
  bool Poll(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  // When the oldest batch that runs was started; max(): none runs.
  [[nodiscard]] TimePoint BatchSince() const;
  [[nodiscard]] bool has_attachments() const { return !attachments_.empty(); }

  // The counts of the session's open attachments here; empty when there is none. Set: only of those
  // that this caller made.
  [[nodiscard]] std::vector<AttachmentCounters> CountersOf(
      SessionId session, const std::optional<std::string>& caller = {}) const;
  [[nodiscard]] ExpertStats stats() const;

 private:
  // A committed epoch. On the heap, because attachments hold pointers to it.
  struct EpochRecord {
    CommittedEpoch epoch;
    bool retiring = false;
    // Sources start no step on it any more.
    TimePoint grace_ends{};
    TimePoint ends = TimePoint::max();  // of all bindings, by ShortenRetire
    TimePoint check_at{};               // no binding is overdue before; max(): none is left
    // From Retire; empty once it was called.
    std::function<void()> unbound;
  };
  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& link, const absl::Status& why) override;

  // The epoch of a request that shows its grant. Errors: those of CheckGrant and FindServing; a
  // caller that has no grant learns nothing of what is here.
  absl::StatusOr<EpochRecord*> FindGranted(const AttachRequest& request);
  // Errors: kFailedPrecondition (STALE_EPOCH) unless a source may bind the epoch.
  absl::StatusOr<EpochRecord*> FindServing(absl::string_view deployment, Epoch epoch,
                                           const PlanHash& hash);
  EpochRecord* Find(absl::string_view deployment, Epoch epoch);
  absl::StatusOr<ExpertAttachment*> FindAttachment(AttachmentId attachment) const;
  // Errors: kResourceExhausted (TOO_MANY_SESSIONS).
  absl::Status CheckRoom(const AttachRequest& request) const;
  // The epoch of a request that may attach, as far as memory is not concerned. Errors: as Admit.
  absl::StatusOr<EpochRecord*> CheckAttach(const AttachRequest& request);
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  [[nodiscard]] absl::StatusOr<std::shared_ptr<void>> CountMemory(
      const AttachRequest& request, const EpochRuntime& runtime) const;
  // The attachments of the session, and their memory: they end when it attaches again.
  struct Own {
    std::size_t attachments = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Own OwnOf(const AttachRequest& request) const;
  // Lanes do not share anything: a slow prefill batch delays no decode batch.
  ExpertLane& LaneOf(WorkClass work_class) { return lanes_[static_cast<std::size_t>(work_class)]; }
  // Each returns true when it did something, so that Poll tries again.
  bool StartBatch(ExpertLane& lane, TimePoint now);
  bool FinishBatch(ExpertLane& lane);
  // For what is measured within a poll; nothing is decided by it.
  [[nodiscard]] TimePoint MeasuredNow() const {
    return options_.clock != nullptr ? options_.clock->Now() : polled_at_;
  }
  // The rows that a batch in `memory` may have now, at least those of BatchOptions.
  [[nodiscard]] std::uint32_t RowsMax(const BatchMemory& memory, TimePoint now) const;
  // Sends the result, or the error, of a request that was in a batch; frees a closed attachment.
  void Answer(const PendingRequest& at, const ExpertLane& lane, const absl::Status& status,
              std::uint32_t nan_rows);
  // Writes down what became of a traced request, just before it is answered.
  void Trace(const PendingRequest& at, TimePoint began, TimePoint ended,
             const absl::Status& status) const;
  bool SendRefusals();
  void ForgetPending(const ExpertAttachment* attachment);
  bool CloseBroken();
  bool KeepTimers(TimePoint now);
  // Ends the bindings that are due at `now`, and sets check_at. True when there was any.
  bool EndBindings(EpochRecord& record, TimePoint now);
  // Calls `unbound` for each retiring epoch that nothing binds any more.
  void ReportUnbound();
  [[nodiscard]] bool IsBound(const EpochRecord& record) const;
  // Remembers a broken attachment for CloseBroken.
  void SendFailed(ExpertAttachment* attachment, const absl::Status& why);

  ExpertEngineOptions options_;
  Transport* transport_;
  DeviceBackend* const device_;
  const bool host_access_;  // the device reaches the slots where they lie
  const CountedBytes attachment_bytes_;
  std::vector<std::unique_ptr<EpochRecord>> epochs_;
  absl::flat_hash_map<AttachmentId, std::unique_ptr<ExpertAttachment>> attachments_;
  // Links that broke while frames were taken in or sent; closed before Poll returns.
  std::vector<std::pair<ExpertAttachment*, absl::Status>> broken_;
  // Attachments that are closed and still have requests in a batch.
  std::vector<std::unique_ptr<ExpertAttachment>> closing_;
  // All credits of all attachments. The queues keep room for so many, so that a poll allocates
  // nothing.
  std::size_t credits_ = 0;
  std::array<ExpertLane, 2> lanes_;  // by class: kDecode, kPrefill
  TimePoint polled_at_{};
  TimePoint answered_at_{};     // when the last result was sent
  TimePoint decoding_until_{};  // decode work is expected until then
  std::vector<PendingRequest> refused_;
  bool device_faulted_ = false;
  ExpertStats stats_;
};

}  // namespace switchyard
