// The expert side of the data plane: attachments, committed epochs, frames in, results out.
//
//   transport --frames--> attachments (checked, copied) --pending--> one batch for each (layer,
//   epoch, mode) --ChunkExecutor--> rows straight into the reply slots --headers--> transport
//
// One thread owns it (expert_service.h); commands run between two polls, and its callbacks must not
// call it back. Poll allocates nothing but for refusals. Time comes in as an argument.
#pragma once

#include <chrono>
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
#include "worker/expert/epoch_stager.h"
#include "worker/expert/expert_attachment.h"
#include "worker/transport/transport.h"

namespace switchyard {

struct ExpertEngineOptions {
  ExpertAttachment::Identity identity;
  std::uint32_t attachments_max = 256;
  std::uint32_t slots_max = 64;               // pairs of one attachment
  std::uint32_t slot_bytes_max = 64U << 20;   // of one slot
  std::uint64_t ring_bytes_max = 4ULL << 30;  // of all own rings
  Duration retire_grace = std::chrono::seconds(5);
  // Told when the engine itself closes an attachment: its link broke, or its epoch went away.
  std::function<void(AttachmentId, const absl::Status& why)> on_closed;
};

struct ExpertStats {
  std::uint64_t requests = 0;    // answered with a result
  std::uint64_t rows = 0;        // of those
  std::uint64_t batches = 0;     // runs of the executor
  std::uint64_t refused = 0;     // answered with an error
  std::uint64_t duplicates = 0;  // requests for a pair that was busy; dropped
  std::uint64_t nan_rows = 0;
  std::uint64_t attachments = 0;  // open now
};

class ExpertEngine final : private FrameSink {
 public:
  // `transport` outlives the engine.
  ExpertEngine(ExpertEngineOptions options, Transport* transport);
  ~ExpertEngine() override;
  ExpertEngine(const ExpertEngine&) = delete;
  ExpertEngine& operator=(const ExpertEngine&) = delete;

  // Sources may bind to the epoch from now on.
  void Activate(StagedEpoch staged);
  // No new bindings; `unbound` is called once, when none is left, at the latest `retire_grace`
  // after `now`: what is still bound then is closed (FAILED_PRECONDITION, STALE_EPOCH). At once
  // when the epoch is not known here.
  void Retire(absl::string_view deployment, Epoch epoch, TimePoint now,
              std::function<void()> unbound);
  // Gives the epoch out for destruction, after closing what is bound to it. Empty: not known.
  StagedEpoch Drop(absl::string_view deployment, Epoch epoch);

  // Errors: kFailedPrecondition (STALE_EPOCH) unless that epoch and hash are committed and not
  // retiring; kInvalidArgument (BAD_REQUEST, MESSAGE_TOO_LARGE) for a ring that cannot be served;
  // kResourceExhausted (TOO_MANY_SESSIONS, OUT_OF_MEMORY); those of Link::Connect.
  absl::StatusOr<AttachGrant> Attach(const AttachRequest& order);
  // Errors: as Attach; kNotFound (UNKNOWN_SESSION) when there is no such attachment.
  absl::Status Bind(AttachmentId attachment, const BindRequest& order);
  absl::Status Release(AttachmentId attachment, const ReleaseRequest& order);
  // The source is gone or done. Does not call on_closed.
  void Close(AttachmentId attachment);

  // Takes in what has come, runs all that is complete, answers, and keeps the timers. True when it
  // did anything.
  bool Poll(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  [[nodiscard]] bool has_attachments() const { return !attachments_.empty(); }

  // Of the session's open attachments here; empty when there is none.
  [[nodiscard]] std::vector<AttachmentCounters> CountersOf(SessionId session) const;
  [[nodiscard]] ExpertStats stats() const;

 private:
  struct EpochRecord {
    CommittedEpoch epoch;
    bool retiring = false;
    TimePoint close_at{};
    std::function<void()> unbound;
  };
  struct PendingPair {
    ExpertAttachment* attachment = nullptr;
    std::uint32_t pair = 0;
  };

  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& link, const absl::Status& why) override;

  absl::StatusOr<EpochRecord*> FindServing(absl::string_view deployment, Epoch epoch,
                                           const PlanHash& hash);
  EpochRecord* Find(absl::string_view deployment, Epoch epoch);
  absl::StatusOr<ExpertAttachment*> FindAttachment(AttachmentId attachment) const;
  absl::Status CheckOrder(const AttachRequest& order) const;
  struct Replaced {
    std::size_t attachments = 0;
    std::uint64_t ring_bytes = 0;
  };
  [[nodiscard]] Replaced ReplacedBy(const AttachRequest& order) const;
  void RunPending();
  void RunBatch(const ExpertAttachment::Pair& like, ExpertAmax* amax);
  void SendRefusals();
  void CloseBroken();
  bool KeepTimers(TimePoint now);
  void CloseBound(const EpochRecord& record);
  void ReportUnbound();
  [[nodiscard]] bool IsBound(const EpochRecord& record) const;
  void SendFailed(ExpertAttachment* attachment, const absl::Status& why);

  ExpertEngineOptions options_;
  Transport* transport_;
  std::vector<std::unique_ptr<EpochRecord>> epochs_;
  absl::flat_hash_map<AttachmentId, std::unique_ptr<ExpertAttachment>> attachments_;
  // Links that broke while frames were taken in or sent; closed before Poll returns.
  std::vector<std::pair<ExpertAttachment*, absl::Status>> broken_;
  // Room for every pair of every attachment is kept, so that a poll allocates nothing.
  std::size_t pairs_ = 0;
  std::vector<PendingPair> pending_;
  std::vector<PendingPair> running_;
  std::vector<ExecutorChunk> batch_;
  ExpertStats stats_;
};

}  // namespace switchyard
