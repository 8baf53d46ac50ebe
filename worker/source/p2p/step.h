// One step in flight: its plan, where each chunk stands, and the sum that becomes y.
//
// y is finished token by token in ascending order as soon as all rows of a token are here, straight
// from the reply slots; a chunk's credit is released when the last token of its window is done.
// Orders of summation (bit-equality): low_latency adds BF16 rows times weight, k ascending, FP32
// fused multiply-add; normal adds BF16 partial rows, worker ordinal ascending, FP32. Arrival order
// is never an order of summation.
//
// Encoding and sums run on the stream of the source's device, which reads and writes the request's
// memory and the rings meanwhile. So a step whose result is decided is done only when the device
// has let go of it. Objects are pooled: memory is reused from step to step. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
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
#include "worker/source/p2p/step_trace.h"
#include "worker/source/step_request.h"

namespace switchyard {

class Step {
 public:
  // A sum on the device of the tensors has about so many terms and tokens at most. Their lists pass
  // through memory of its stream.
  static constexpr std::size_t kDeviceTermsMax = 16384;

  //   kWaiting --a credit--> kEncoding --its rows are encoded--> kSent --the reply--> kAnswered
  //   kAnswered --its tokens are summed--> kRead
  enum class ChunkState : std::uint8_t { kWaiting, kEncoding, kSent, kAnswered, kRead };

  // Plans the step. `request` has passed validation of shapes. Errors as BuildDispatchPlan.
  absl::Status Begin(StepId id, const StepRequest& request, BoundPlan* bound_plan,
                     const BoundLayer& layer, OutputDtype y_dtype, std::uint32_t chunk_rows,
                     TimePoint deadline);

  // The next chunk for `worker` that is kWaiting; -1 when there is none. Chunks of one worker are
  // encoded and sent in order.
  [[nodiscard]] std::int32_t NextUnsent(std::int32_t worker) const;
  // `chunk` counts within the step, here and below; it must be the worker's next unsent one. The
  // device has it until MarkEncoded.
  void MarkEncoding(std::uint32_t chunk, std::uint32_t credit);
  // The device has let go of the chunk: with its rows encoded, or without because of an error.
  void MarkEncoded() { --device_work_; }
  void MarkSent(std::uint32_t chunk) { states_[chunk].state = ChunkState::kSent; }
  // The reply's rows: BF16 [rows, hidden], valid until the chunk is released.
  void MarkAnswered(std::uint32_t chunk, const Bf16* rows);
  // The sum over all tokens that can be finished now, or over some of them where the device takes
  // no more; nullopt when there is none, or while a sum is with the device. What it points at stays
  // unchanged until EndSum.
  std::optional<SumRun> BeginSum();
  // The device has let go of the sum. `summed`: y is written; calls `release` for each chunk that
  // has been read. True when tokens were left or rows have come meanwhile, so that another sum may
  // be due.
  bool EndSum(bool summed, absl::FunctionRef<void(std::uint32_t chunk)> release);
  [[nodiscard]] bool sum_running() const { return sum_running_; }
  // The step ends without its result: no further work of it goes to the device.
  void Fail(absl::Status why);

  // The attachment of the chunk's worker.
  [[nodiscard]] Attachment& AttachmentOf(std::uint32_t chunk) const;
  // The rows of the chunk and of its answer stand in memory of devices (kRowsOnDevice).
  [[nodiscard]] bool RowsOnDevice(std::uint32_t chunk) const;
  // The chunk with `index` among those of `attachment`'s worker; -1 when there is none.
  [[nodiscard]] std::int32_t ChunkAt(const Attachment& attachment, std::uint16_t index) const;
  // True while anything of the step is to be sent to, is with, or lies in the ring of `attachment`.
  [[nodiscard]] bool Awaits(const Attachment& attachment) const;
  // A worker that has not answered; nullptr when none is awaited.
  [[nodiscard]] const Attachment* FirstAwaited() const;

  // The result is decided: all tokens are summed, or the step has failed.
  [[nodiscard]] bool ended() const { return failed_ || next_token_ == tokens(); }
  // And the device has let go of the request's memory and of the rings: nothing writes to y.
  [[nodiscard]] bool done() const { return ended() && device_work_ == 0; }
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] StepId id() const { return id_; }
  [[nodiscard]] LayerId layer() const { return request_.layer; }
  // The engine ends the step then; the step itself never looks at the clock.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] BoundPlan* bound_plan() const { return bound_plan_; }
  [[nodiscard]] const BoundLayer& bound_layer() const { return *layer_; }
  [[nodiscard]] const StepRequest& request() const { return request_; }
  [[nodiscard]] const DispatchPlan& plan() const { return plan_; }
  // [tokens, top_k], dense.
  [[nodiscard]] std::span<const float> weights() const { return dense_weights_; }
  [[nodiscard]] const ChunkPlan& chunk_plan() const { return chunks_; }
  [[nodiscard]] ChunkState chunk_state(std::uint32_t chunk) const { return states_[chunk].state; }
  [[nodiscard]] StepTrace& trace() { return trace_; }
  [[nodiscard]] std::uint32_t credit_of(std::uint32_t chunk) const { return states_[chunk].credit; }

 private:
  // Where one chunk stands.
  struct ChunkProgress {
    ChunkState state = ChunkState::kWaiting;
    std::uint32_t credit = 0;
    const Bf16* reply = nullptr;  // in the ring, or own rows; kAnswered only
  };
  // Where the row of a (token, k) lies. chunk -1: the token has no expert at that k.
  struct RowRef {
    std::int32_t chunk = -1;
    std::uint32_t row = 0;
  };
  // How far the step has come with one worker, in chunks of the whole step.
  struct WorkerCursor {
    std::uint32_t chunk = 0;       // the chunk that holds the next unread row
    std::uint32_t row = 0;         // within it
    std::uint32_t unreleased = 0;  // first chunk not released
    std::uint32_t unsent = 0;      // first chunk not sent
  };

  // The request's tokens; validation has checked that they are 0 or more.
  [[nodiscard]] std::uint32_t tokens() const { return static_cast<std::uint32_t>(request_.tokens); }
  // Copies ids and weights without their strides.
  void CopyRouting();
  // Fills row_of_.
  void LocateRows();
  // Collects the terms of `token` into terms_ and factors_; false while a row is missing.
  bool CollectLowLatency(std::uint32_t token);
  bool CollectNormal(std::uint32_t token);  // of normal: terms_ only, weights were applied already
  // Moves the cursors past the rows of `token`, which has been collected.
  void AdvanceNormal(std::uint32_t token);
  // y of the tokens from `first` on whose terms have been collected.
  [[nodiscard]] SumRun SumOf(std::uint32_t first) const;
  // A row of an answered chunk.
  [[nodiscard]] const Bf16* RowAt(std::uint32_t chunk, std::uint32_t row) const;

  StepId id_;
  StepRequest request_;
  BoundPlan* bound_plan_ = nullptr;
  const BoundLayer* layer_ = nullptr;
  OutputDtype y_dtype_ = OutputDtype::kF32;
  std::int32_t hidden_ = 0;
  TimePoint deadline_{};
  bool failed_ = false;
  absl::Status status_;
  std::uint32_t device_work_ = 0;  // chunks and sums that are with the device

  std::vector<std::int32_t> dense_ids_;  // [tokens, top_k]
  std::vector<float> dense_weights_;     // [tokens, top_k]
  DispatchPlan plan_;                    // which rows go to which worker
  ChunkPlan chunks_;                     // how each worker's rows are cut
  std::vector<ChunkProgress> states_;
  std::vector<WorkerCursor> cursors_;
  std::vector<RowRef> row_of_;    // low_latency: [tokens, top_k]
  std::uint32_t next_token_ = 0;  // the first token that is not summed
  bool sum_running_ = false;
  bool sum_again_ = false;     // the running sum left tokens, or rows have come since it began
  std::uint32_t sum_end_ = 0;  // of the running sum: the first token after it
  // For the tokens that are summed together: their rows in the order of summation, the rows'
  // weights (low_latency), and where each token's rows begin.
  std::vector<const Bf16*> terms_;
  std::vector<float> factors_;
  std::vector<std::uint32_t> term_begin_;
  StepTrace trace_;
};

}  // namespace switchyard
