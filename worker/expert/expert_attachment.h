// One attachment as the worker sees it: the link with its two rings, the epochs that are bound, the
// requests that are taken in and not answered yet, and the counts of what it served.
//
// A pair is busy from the arrival of its request to the sending of its reply. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/mutant.h"
#include "core/session_messages.h"
#include "worker/expert/chunk_executor.h"
#include "worker/expert/layer_runtime.h"
#include "worker/expert/request_intake.h"
#include "worker/transport/transport.h"

namespace switchyard {

// An epoch that sources may bind, as the engine keeps it.
struct CommittedEpoch {
  std::shared_ptr<const EpochRuntime> runtime;
  std::unique_ptr<ChunkExecutor> executor;
};

// Rows, bytes and hits of one attachment or one session's direct calls. Not thread-safe.
class ServedCounts {
 public:
  // Remembers the layers of the deployment; Add then allocates nothing.
  explicit ServedCounts(const EpochRuntime& runtime);
  // A batch of `request` whose rows came and went in `request_row_bytes` and `reply_row_bytes`.
  void Add(const LayerRuntime& layer, const RequestView& request, std::int64_t request_row_bytes,
           std::int64_t reply_row_bytes);
  void AddNanRows(std::uint32_t rows) { counters_.nan_rows += rows; }
  // From now on: room for the magnitudes of every expert.
  void RecordAmax();
  // Of a layer, [experts]; nullptr when nothing is recorded.
  [[nodiscard]] ExpertAmax* AmaxOf(const LayerRuntime& layer);
  // Takes over what `ended` counted; for the same layers and sizes alone.
  void Absorb(const ServedCounts& ended);
  [[nodiscard]] AttachmentCounters Snapshot() const;
  // True when `runtime` has the same layers and sizes, so that its steps can be counted here.
  [[nodiscard]] bool Fits(const EpochRuntime& runtime) const;

 private:
  MoeShape shape_;
  std::vector<LayerId> layers_;
  std::vector<std::uint64_t> hits_;  // [layers, experts]
  std::vector<ExpertAmax> amax_;     // [layers, experts], or empty
  AttachmentCounters counters_;      // hits are filled in by Snapshot
};

class ExpertAttachment {
 public:
  struct Identity {
    std::string worker_id;
    Incarnation incarnation;  // of this process
    MutantId mutant = MutantId::kNone;
  };
  struct Pair {
    bool busy = false;
    FrameHeader header;
    RequestIntake intake;
    CommittedEpoch* epoch = nullptr;
    std::vector<std::uint32_t> metadata;  // private copy
  };
  enum class Arrival : std::uint8_t { kTaken, kDropped, kDuplicate };

  // `first` is what the order binds. `order` has been checked.
  ExpertAttachment(const AttachRequest& order, CommittedEpoch* first, Identity identity);
  // Makes the link and connects it to the order's reply ring. Errors: those of CreateLink and
  // Connect.
  absl::StatusOr<AttachGrant> Open(Transport* transport);

  // kInvalidArgument (BAD_CONFIG) when the epoch has other layers or sizes: such a deployment needs
  // a new attachment. Binding twice is binding once.
  absl::Status Bind(CommittedEpoch* epoch);
  void Release(const CommittedEpoch* epoch);
  [[nodiscard]] bool Binds(const CommittedEpoch* epoch) const;
  [[nodiscard]] CommittedEpoch* FindBound(Epoch epoch) const;

  // Takes a frame in; kDropped says why in `drop`. When kTaken, the frame's pair is busy and holds
  // either a request to run or a refusal to send.
  Arrival OnFrame(const HeaderBytes& raw, const FrameHeader& header,
                  std::span<const std::byte> payload, FrameDrop* drop);
  [[nodiscard]] Pair& pair(std::uint32_t index) { return pairs_[index]; }

  // Where the magnitudes of a layer's experts are noted; nullptr when the session does not ask.
  [[nodiscard]] ExpertAmax* AmaxOf(const LayerRuntime& layer) { return counts_.AmaxOf(layer); }
  // Where the rows of the pair's result go.
  [[nodiscard]] Bf16* ReplyRows(const Pair& pair);
  // Sends the result whose rows stand in ReplyRows, counts it and frees the pair.
  absl::Status SendResult(Pair& pair, std::uint32_t nan_rows);
  // Sends the pair's refusal and frees the pair.
  absl::Status SendRefusal(Pair& pair);

  // Goes on with the counts of another attachment of the same session and deployment, which ends.
  void Absorb(const ExpertAttachment& ended) { counts_.Absorb(ended.counts_); }

  [[nodiscard]] AttachmentId number() const { return link_->offer().attachment; }
  [[nodiscard]] std::uint64_t ring_bytes() const { return link_->offer().ring_bytes; }
  [[nodiscard]] SessionId session() const { return order_.session; }
  [[nodiscard]] const std::string& deployment() const { return order_.deployment; }
  [[nodiscard]] std::uint32_t pairs() const { return static_cast<std::uint32_t>(pairs_.size()); }
  [[nodiscard]] AttachmentCounters Snapshot() const;

 private:
  [[nodiscard]] FrameHeader ReplyHeader(const Pair& pair, FrameKind kind,
                                        const FrameLayout& layout) const;
  absl::Status Send(Pair& pair, const FrameHeader& header, std::span<const std::byte> metadata);

  AttachRequest order_;
  Identity identity_;
  MoeShape shape_;
  std::unique_ptr<Link> link_;
  std::vector<CommittedEpoch*> bound_;  // ascending epoch
  std::vector<Pair> pairs_;
  ServedCounts counts_;
};

}  // namespace switchyard
