// One attachment as the worker sees it: the link with its two rings, the epochs that are bound, the
// requests that are taken in and not answered yet, and the counts of what it served.
//
// A credit is busy from the arrival of its request to the sending of its reply. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/session_messages.h"
#include "worker/expert/attach_ahead.h"
#include "worker/expert/batch_memory.h"
#include "worker/expert/expert_batch.h"
#include "worker/expert/layer_runtime.h"
#include "worker/expert/request_intake.h"
#include "worker/expert/served_counts.h"
#include "worker/transport/transport.h"

namespace switchyard {

// An epoch that sources may bind, as the engine keeps it.
struct CommittedEpoch {
  std::shared_ptr<const EpochRuntime> runtime;
  std::shared_ptr<EpochMemory> memory;
};

// The stream that serves a session's work, so that prefill batches never delay decode steps.
WorkClass WorkClassOf(Phase phase, DispatchMode mode);

// The link of an attachment for `request`.
LinkOptions LinkOptionsOf(const AttachRequest& request);

class ExpertAttachment {
 public:
  struct Identity {
    std::string worker_id;
    Incarnation incarnation;  // of this process
  };
  // A pair of slots and the request that occupies it. Its memory is sized for the largest request
  // when the attachment opens, so that taking a frame in allocates nothing.
  struct Credit {
    bool busy = false;
    FrameHeader header;
    RequestIntake intake;
    // Kept alive until the reply: the epoch may be released and dropped meanwhile.
    CommittedEpoch epoch;
    std::unique_ptr<std::byte[]> memory;  // of the three below
    // The routing as the device reads it.
    std::span<std::int32_t> slots;
    std::span<float> weights;           // empty in low_latency
    std::span<std::uint32_t> metadata;  // private copy
  };
  // The fate of a frame: taken in, ignored with a reason, or ignored because its credit is busy.
  enum class Arrival : std::uint8_t { kTaken, kDropped, kDuplicate };

  // The memory of this process that an attachment for `request` takes: its ring, the peer's ring,
  // which is mapped or staged here, credits and counts.
  static std::uint64_t BytesOf(const AttachRequest& request, const EpochRuntime& runtime);
  // Allocates and zeroes, which takes the page faults: up to 100 ms for the largest. Has fewer
  // pieces than credits when there is no memory.
  static std::shared_ptr<CreditMemory> MakeCredits(const AttachRequest& request,
                                                   const MoeShape& shape);

  // `first` is the epoch that the request binds; it outlives the binding. `request` has been
  // checked.
  ExpertAttachment(const AttachRequest& request, CommittedEpoch* first, Identity identity);
  ~ExpertAttachment();
  ExpertAttachment(const ExpertAttachment&) = delete;
  ExpertAttachment& operator=(const ExpertAttachment&) = delete;
  // Makes the link, connects it to the request's reply ring and lets `device` reach both rings if
  // it can. `transport` outlives the attachment. Errors: kResourceExhausted (OUT_OF_MEMORY); those
  // of CreateLink and Connect.
  absl::StatusOr<AttachGrant> Open(Transport* transport, DeviceBackend* device,
                                   AttachAhead ahead = {});

  // Binding twice is binding once; `epoch` stays valid until it is released. Errors:
  // kInvalidArgument (BAD_CONFIG) when the epoch has other layers or sizes: such a deployment needs
  // a new attachment.
  absl::Status Bind(CommittedEpoch* epoch);
  void Release(const CommittedEpoch* epoch);
  // As Release, for a source that has not released the epoch in time: its late frames of the epoch
  // are refused with kUnavailable (STALE_EPOCH).
  void ReleaseOverdue(const CommittedEpoch* epoch);
  [[nodiscard]] bool Binds(const CommittedEpoch* epoch) const;
  [[nodiscard]] bool has_bindings() const { return !bound_.empty(); }
  // nullptr when the epoch is not bound. Linear: a source binds two epochs at most during a switch.
  [[nodiscard]] CommittedEpoch* FindBound(Epoch epoch) const;

  // The longest deadline of the source's steps, as far as it has announced them.
  [[nodiscard]] Duration step_deadline() const { return step_deadline_; }
  // Ignored unless longer than every one before; bounded by kStepDeadlineMax.
  void AnnounceDeadline(Duration deadline);

  // Takes a frame in. kDropped sets `drop` to the reason. After kTaken the frame's credit is busy
  // and holds either a request to run or a refusal to send; after kDuplicate the credit is
  // unchanged, because the batch that runs may be reading it.
  Arrival OnFrame(const HeaderBytes& raw, const FrameHeader& header,
                  std::span<const std::byte> payload, FrameDrop* drop);
  [[nodiscard]] Credit& credit(std::uint32_t index) { return credits_[index]; }

  // The rows of the request in `credit` as a batch reads them, and the key that requests of one
  // batch have in common. The answer's rows go straight into the reply slot.
  [[nodiscard]] BatchInput InputOf(const Credit& credit);
  [[nodiscard]] BatchKey KeyOf(const Credit& credit);
  // True when the device reaches both rings by itself.
  [[nodiscard]] bool mapped() const {
    return inbound_mapping_ != nullptr && outbound_mapping_ != nullptr;
  }
  [[nodiscard]] WorkClass work_class() const { return WorkClassOf(request_.phase, request_.mode); }
  // Marks an attachment that was closed with requests in a batch: every later frame is dropped.
  void Detach() { detached_ = true; }
  [[nodiscard]] bool detached() const { return detached_; }
  // Requests that a device may be reading or answering. The rings must stay until it is 0.
  [[nodiscard]] std::uint32_t running() const { return running_; }
  void BeginRun() { ++running_; }
  void EndRun() { --running_; }
  // Sends the result whose rows stand in the reply slot, counts it and frees the credit, also when
  // it fails. Errors: those of Link::Send; the attachment is to be closed then.
  absl::Status SendResult(Credit& credit, std::uint32_t nan_rows);
  // Sends intake.refusal and frees the credit. Errors: as SendResult.
  absl::Status SendRefusal(Credit& credit);

  // Adds the counts of another attachment of the same session and deployment, which ends.
  void Absorb(const ExpertAttachment& ended) { counts_.Absorb(ended.counts_); }

  [[nodiscard]] AttachmentId number() const { return link_->offer().attachment; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // BytesOf its request
  [[nodiscard]] LinkPath path() const { return link_->path(); }
  [[nodiscard]] std::int32_t hidden() const { return shape_.hidden; }
  [[nodiscard]] SessionId session() const { return request_.session; }
  [[nodiscard]] const std::string& caller() const { return request_.caller; }
  [[nodiscard]] const std::string& deployment() const { return request_.deployment; }
  [[nodiscard]] std::uint32_t credits() const {
    return static_cast<std::uint32_t>(credits_.size());
  }
  // The counts with the names of session, worker and path.
  [[nodiscard]] AttachmentCounters Snapshot() const;

 private:
  // The refusal of a frame of an epoch that was released by ReleaseOverdue.
  [[nodiscard]] absl::Status Overdue(Epoch epoch) const;
  [[nodiscard]] FrameHeader ReplyHeader(const Credit& credit, FrameKind kind,
                                        const FrameLayout& layout) const;
  // Writes header and metadata into the reply slot and sends the frame.
  absl::Status Send(Credit& credit, const FrameHeader& header, std::span<const std::byte> metadata);
  // Offers the memory of the device for rows, where both sides have some and map their rings.
  void OfferDeviceRings(AttachAhead ahead, AttachGrant* grant);
  // Where the rows of the answer in that slot go.
  [[nodiscard]] std::byte* ReplySlotOf(const FrameHeader& header) const;
  // Makes the memory unless `memory` is it.
  absl::Status TakeCredits(std::shared_ptr<CreditMemory> memory);

  AttachRequest request_;
  Identity identity_;
  MoeShape shape_;
  const std::uint32_t rows_max_;  // of a chunk, as granted
  const std::uint64_t bytes_;
  std::shared_ptr<void> counted_;   // AttachAhead
  Transport* transport_ = nullptr;  // of link_
  std::unique_ptr<Link> link_;
  // Beside the rings of link_, for frames with kRowsOnDevice; null: there are none.
  std::shared_ptr<DeviceRings> device_rings_;
  // The link's rings as the device reaches them; null where it needs no mapping. They end before
  // the link.
  std::unique_ptr<HostMapping> inbound_mapping_;
  std::unique_ptr<HostMapping> outbound_mapping_;
  std::vector<CommittedEpoch*> bound_;  // ascending epoch
  Epoch overdue_;                       // the newest of ReleaseOverdue
  Duration step_deadline_{};
  std::vector<Credit> credits_;
  std::uint32_t running_ = 0;
  bool detached_ = false;
  ServedCounts counts_;
};

}  // namespace switchyard
