// One step in flight: its plan, where each chunk stands, and the sum that becomes y.
//
// y is finished token by token in ascending order as soon as all rows of a token are here, straight
// from the reply slots; a chunk's pair is given back when the last token of its window is done.
// Orders of summation (bit-equality): low_latency adds BF16 rows times weight, k ascending, FP32
// fused multiply-add; normal adds BF16 partial rows, worker ordinal ascending, FP32. Arrival order
// is never an order of summation. Objects are pooled: memory is reused from step to step. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"
#include "core/ids.h"
#include "worker/device/device_backend.h"
#include "worker/routing/chunk_plan.h"
#include "worker/routing/dispatch_plan.h"
#include "worker/source/p2p/bound_plan.h"

namespace switchyard {

// One layer for one batch. All memory stays valid and unchanged (y: untouched) until the step is
// done. Strides count elements from one row to the next; a row itself is dense.
struct StepRequest {
  LayerId layer;
  std::int32_t tokens = 0;
  const Bf16* x = nullptr;  // [tokens, hidden]
  std::int64_t x_stride = 0;
  const std::int32_t* ids = nullptr;  // [tokens, top_k]; -1: no expert
  std::int64_t ids_stride = 0;
  const float* weights = nullptr;  // [tokens, top_k]
  std::int64_t weights_stride = 0;
  std::int32_t top_k = 0;
  void* y = nullptr;  // [tokens, hidden] in the session's y_dtype
  std::int64_t y_stride = 0;
  Duration deadline{};  // 0: the session's
};

class Step {
 public:
  enum class ChunkState : std::uint8_t { kWaiting, kSent, kAnswered, kRead };

  // Plans the step. `request` has passed validation of shapes. Errors as BuildDispatchPlan.
  absl::Status Begin(StepId id, const StepRequest& request, BoundPlan* binding,
                     const BoundLayer& layer, OutputDtype y_dtype, std::uint32_t chunk_rows,
                     TimePoint deadline);

  // The next chunk for `worker` that has not been sent; -1 when there is none.
  [[nodiscard]] std::int32_t NextUnsent(std::int32_t worker) const;
  void MarkSent(std::uint32_t chunk, std::uint32_t pair);
  // The reply's rows: BF16 [rows, hidden], valid until the chunk is given back.
  void MarkAnswered(std::uint32_t chunk, const Bf16* rows);
  // Finishes the tokens that can be finished; `give_back` is told of each chunk that has been read.
  void FinishTokens(const RowOps& ops, absl::FunctionRef<void(std::uint32_t chunk)> give_back);
  // The step ends without its answer; y is not written any more.
  void Fail(absl::Status why);

  // Memory for the answer of `rows` rows of the step's own experts; lives as long as the step.
  Bf16* OwnRows(std::size_t rows);
  [[nodiscard]] Attachment& AttachmentOf(std::uint32_t chunk) const;
  // The chunk with `index` among those of `attachment`'s worker; -1 when there is none.
  [[nodiscard]] std::int32_t ChunkAt(const Attachment& attachment, std::uint16_t index) const;
  // True while anything of the step is to be sent to, is with, or lies in the ring of `attachment`.
  [[nodiscard]] bool Awaits(const Attachment& attachment) const;
  // A worker that has not answered; nullptr when none is awaited.
  [[nodiscard]] const Attachment* FirstAwaited() const;

  [[nodiscard]] bool done() const { return failed_ || next_token_ == tokens(); }
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] StepId id() const { return id_; }
  [[nodiscard]] LayerId layer() const { return request_.layer; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] BoundPlan* binding() const { return binding_; }
  [[nodiscard]] const BoundLayer& layer_binding() const { return *layer_; }
  [[nodiscard]] const StepRequest& request() const { return request_; }
  [[nodiscard]] const DispatchPlan& plan() const { return plan_; }
  [[nodiscard]] std::span<const float> weights() const { return dense_weights_; }
  [[nodiscard]] const ChunkPlan& chunk_plan() const { return chunks_; }
  [[nodiscard]] ChunkState chunk_state(std::uint32_t chunk) const { return states_[chunk].state; }
  [[nodiscard]] std::uint32_t pair_of(std::uint32_t chunk) const { return states_[chunk].pair; }

 private:
  struct ChunkProgress {
    ChunkState state = ChunkState::kWaiting;
    std::uint32_t pair = 0;
    const Bf16* reply = nullptr;
  };
  struct RowRef {
    std::int32_t chunk = -1;
    std::uint32_t row = 0;
  };
  struct WorkerCursor {
    std::uint32_t chunk = 0;       // the chunk that holds the next unread row
    std::uint32_t row = 0;         // within it
    std::uint32_t unreleased = 0;  // first chunk not given back
    std::uint32_t unsent = 0;      // first chunk not sent
  };

  [[nodiscard]] std::uint32_t tokens() const { return static_cast<std::uint32_t>(request_.tokens); }
  void CopyRouting();
  void LocatePairs();
  // Collects the terms of `token` into terms_ and factors_; false while a row is missing.
  bool CollectLowLatency(std::uint32_t token);
  bool CollectNormal(std::uint32_t token);
  void AdvanceNormal(std::uint32_t token);
  void SumInto(std::uint32_t token, const RowOps& ops);
  [[nodiscard]] const Bf16* RowAt(std::uint32_t chunk, std::uint32_t row) const;

  StepId id_;
  StepRequest request_;
  BoundPlan* binding_ = nullptr;
  const BoundLayer* layer_ = nullptr;
  OutputDtype y_dtype_ = OutputDtype::kF32;
  std::int32_t hidden_ = 0;
  TimePoint deadline_{};
  bool failed_ = false;
  absl::Status status_;

  std::vector<std::int32_t> dense_ids_;  // [tokens, top_k]
  std::vector<float> dense_weights_;     // [tokens, top_k]
  std::vector<std::vector<Bf16>> own_rows_;
  DispatchPlan plan_;
  ChunkPlan chunks_;
  std::vector<ChunkProgress> states_;
  std::vector<WorkerCursor> cursors_;
  std::vector<RowRef> row_of_pair_;  // low_latency: [tokens, top_k]
  std::uint32_t next_token_ = 0;
  std::vector<const Bf16*> terms_;
  std::vector<float> factors_;
  std::vector<float> sum_;  // [hidden], when y is BF16
};

}  // namespace switchyard
