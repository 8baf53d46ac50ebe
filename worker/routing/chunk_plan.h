// Cuts a dispatch plan into chunks: the unit of transfer and reply.
//
// A chunk holds the rows of one worker for a window of consecutive tokens, at most `chunk_rows` of
// them and never a part of a token. So y can be finished window by window while later chunks still
// wait for credits, however large the batch, and no order of replies can block another. Within a
// low_latency chunk rows are grouped by slot, then by token. Pure; Build reuses the object's
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "core/ids.h"
#include "worker/routing/dispatch_plan.h"

namespace switchyard {

// One frame's worth of rows. Indices and counts are as wide as the frame header's fields.
struct Chunk {
  std::int32_t worker = 0;      // ordinal
  std::uint16_t index = 0;      // among the worker's chunks, from 0
  std::uint16_t count = 1;      // of the worker's chunks
  std::uint32_t row_begin = 0;  // in ChunkPlan::rows
  std::uint32_t rows = 0;
  std::uint32_t token_end = 0;     // the window's end, exclusive
  std::uint32_t counts_begin = 0;  // low_latency: in ChunkPlan::slot_counts
};

class ChunkPlan {
 public:
  // Copies what it needs of `plan`. `local_slots[w]` is the number of experts of the layer on
  // worker w; `chunk_rows` >= the plan's top_k. Errors: kInvalidArgument (TOO_MANY_TOKENS) if a
  // worker gets more chunks than a frame header can number; the object is of no use then until the
  // next Build.
  absl::Status Build(const DispatchPlan& plan, std::span<const std::int32_t> local_slots,
                     std::uint32_t chunk_rows);

  // Sorted by (worker, index). Workers without rows have none.
  [[nodiscard]] std::span<const Chunk> chunks() const { return chunks_; }
  // The chunks of one worker: [first, last) in chunks().
  // Empty when the worker has no rows.
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };
  [[nodiscard]] Range ChunksOf(std::int32_t worker) const {
    return ranges_[static_cast<std::size_t>(worker)];
  }
  // Views are valid until the next Build.
  [[nodiscard]] std::span<const PlannedRow> RowsOf(const Chunk& chunk) const {
    return std::span(rows_).subspan(chunk.row_begin, chunk.rows);
  }
  // low_latency: rows for each local slot of the worker in this chunk; empty in normal mode.
  [[nodiscard]] std::span<const std::uint32_t> SlotCountsOf(const Chunk& chunk) const;

 private:
  // Both append the worker's chunks in the order of their windows.
  void CutNormal(const WorkerRows& worker, std::uint32_t chunk_rows);
  void CutLowLatency(const WorkerRows& worker, std::int32_t tokens, std::int32_t slots,
                     std::uint32_t chunk_rows);
  // Ends a chunk at `token_end`.
  void AddWindow(const WorkerRows& worker, std::uint32_t token_end, std::uint32_t rows);

  // All vectors keep their memory from Build to Build.
  std::vector<Chunk> chunks_;
  // By the worker's ordinal; also for workers without chunks.
  std::vector<Range> ranges_;
  std::vector<PlannedRow> rows_;
  std::vector<std::uint32_t> slot_counts_;
  std::vector<std::int32_t> slots_of_;
  // low_latency scratch: rows of each token on the worker, and a cursor into each slot's rows.
  std::vector<std::uint32_t> rows_of_token_;
  std::vector<std::uint32_t> cursors_;
  std::vector<std::uint32_t> slot_ends_;
};

}  // namespace switchyard
