// Runs complete request chunks of one layer and mode through the experts of this worker.
//
// Rows of all chunks are grouped by expert, so that each expert's weights are read once for the
// whole batch. low_latency answers a BF16 row for each request row; normal answers each token's sum
// over this worker's experts, k ascending in FP32, rounded once. What a row answers depends on the
// row and the weights alone, never on its company, so any split of rows into chunks or batches
// gives the same bits.
//
// Used by the expert engine for frames and, without frames, for a gateway's own experts. Execute
// allocates nothing, locks nothing, logs nothing. One caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/format/bf16.h"
#include "core/moe_shape.h"
#include "core/mutant.h"
#include "worker/device/cpu/machine/aligned_buffer.h"
#include "worker/device/device_backend.h"
#include "worker/expert/layer_runtime.h"
#include "worker/routing/request_codec.h"

namespace switchyard {

struct ExecutorOptions {
  // Pairs (row, expert) of one device run; a larger batch takes several. At least the top-k.
  std::int64_t rows_max = 4096;
  MutantId mutant = MutantId::kNone;
};

// One chunk. Its rows are either dense, in any dtype that the layer takes, or BF16 and given one by
// one; they may be another process's memory, so they are read as data only.
struct ExecutorChunk {
  const RequestView* request = nullptr;
  DispatchDtype dtype = DispatchDtype::kBf16;
  const std::byte* dense_rows = nullptr;  // [rows, hidden] of `dtype`, with
  const std::byte* scales = nullptr;      // [rows, scales of a row] where it has any; or
  std::span<const Bf16* const> row_of;    // [rows], each [hidden]
  // [rows, hidden], in request order; overlaps no input. Rows of another dtype than BF16 stand here
  // decoded until they are answered.
  Bf16* out = nullptr;
  std::uint32_t nan_rows = 0;  // set by Execute: rows whose answer is NaN
  // BF16 rows that went through a quantised codec already; those of another dtype always have.
  bool rounded = false;
};

class ChunkExecutor {
 public:
  // Allocates all memory of later runs. Errors: kResourceExhausted (OUT_OF_MEMORY);
  // kInvalidArgument (BAD_CONFIG) when rows_max is below the top-k. `device` outlives it.
  static absl::StatusOr<std::unique_ptr<ChunkExecutor>> Create(DeviceBackend* device,
                                                               const MoeShape& shape,
                                                               const ExecutorOptions& options);

  // The chunks are of one mode; `layer` has the executor's shape and the slots they name. `amax`:
  // [experts], raised by what each expert sees of these chunks; null: nobody asks.
  void Execute(const LayerRuntime& layer, std::span<ExecutorChunk> chunks,
               ExpertAmax* amax = nullptr);

  [[nodiscard]] const MoeShape& shape() const { return shape_; }

 private:
  // Where the next row comes from: the chunk, the row, and in low_latency the row's slot.
  struct Cursor {
    std::size_t chunk = 0;
    std::uint32_t row = 0;
    std::int32_t slot = 0;
    std::uint32_t slot_rows_done = 0;
  };

  ChunkExecutor(DeviceBackend* device, const MoeShape& shape, const ExecutorOptions& options);
  [[nodiscard]] std::int64_t RowsOfRun(const LayerRuntime& layer,
                                       std::span<const ExecutorChunk> chunks) const;
  void Decode(const LayerRuntime& layer, const ExecutorChunk& chunk) const;
  Cursor Gather(const LayerRuntime& layer, std::span<const ExecutorChunk> chunks, Cursor from);
  bool GatherRow(const ExecutorChunk& chunk, Cursor* at);
  void AddPair(std::int32_t slot, const Bf16* row, bool rounded);
  void RunGathered(const LayerRuntime& layer, ExpertAmax* amax);
  void Scatter(std::span<ExecutorChunk> chunks, const Cursor& from, const Cursor& to);
  void AnswerRow(ExecutorChunk& chunk, std::uint32_t row, std::size_t* pair);
  [[nodiscard]] const Bf16* RowOf(const ExecutorChunk& chunk, std::uint32_t row) const;

  DeviceBackend* device_;
  MoeShape shape_;
  ExecutorOptions options_;
  std::unique_ptr<Workspace> workspace_;

  std::int64_t rows_of_run_ = 0;  // most pairs of a device run of this Execute

  // Of the run being gathered; sizes fixed by Create.
  std::int32_t local_slots_ = 0;
  std::size_t pairs_ = 0;
  std::vector<std::int32_t> slot_of_pair_;     // [rows_max]
  std::vector<const Bf16*> row_of_pair_;       // [rows_max]
  std::vector<std::uint8_t> rounded_;          // [rows_max] of row_of_pair_
  std::vector<std::uint32_t> place_of_pair_;   // [rows_max] row in y_
  std::vector<std::uint32_t> slot_begin_;      // [experts + 1]
  std::vector<const Bf16*> grouped_rows_;      // [rows_max], by slot
  std::vector<std::uint8_t> grouped_rounded_;  // [rows_max], by slot
  std::vector<ExpertBatch> batches_;           // [experts]
  AlignedBuffer y_memory_;                     // huge pages: a run walks all of it, row by row
  float* y_ = nullptr;                         // [rows_max, hidden]
  std::vector<const float*> terms_;            // [top_k]
  std::vector<float> factors_;                 // [top_k]
};

}  // namespace switchyard
