#include "worker/source/p2p/slot_bytes.h"

#include <algorithm>

#include "worker/transport/frame.h"

namespace switchyard {
namespace {

// With as many local slots as the model has experts: a plan may move any of them to this worker.
std::int64_t RequestBytes(const BoundLayer& layer, const WireFormat& format, const MoeShape& shape,
                          std::uint32_t rows) {
  return static_cast<std::int64_t>(LayoutOfRequest({.mode = layer.mode,
                                                    .format = format,
                                                    .rows = rows,
                                                    .hidden = shape.hidden,
                                                    .top_k = shape.top_k,
                                                    .local_slots = shape.experts})
                                       .frame_bytes);
}

// The most rows that one worker can get of a step, and what it gets where routing is uniform.
struct RowsOfWorker {
  std::uint64_t most = 0;
  std::uint64_t uniform = 0;
};
RowsOfWorker RowsOf(std::uint64_t tokens, std::uint64_t top_k, std::uint64_t workers,
                    DispatchMode mode) {
  const std::uint64_t pairs = tokens * top_k;
  const std::uint64_t most = mode == DispatchMode::kLowLatency ? pairs : tokens;
  return {most, std::min(most, (pairs + workers - 1) / workers)};
}

}  // namespace

std::uint32_t ChunkRowsOf(const SessionGrant& grant, const ChunkBounds& bounds) {
  const OpenSessionRequest& request = grant.request;
  const auto top_k = static_cast<std::uint64_t>(grant.plan.shape.top_k);
  const std::uint64_t workers = std::max<std::size_t>(grant.plan.workers.size(), 1);
  std::uint64_t most = bounds.rows_max;
  std::uint64_t wanted = most;
  if (request.max_tokens > 0) {
    const RowsOfWorker rows = RowsOf(static_cast<std::uint64_t>(request.max_tokens), top_k, workers,
                                     request.mode.value_or(DispatchMode::kNormal));
    most = std::min(most, rows.most);
    wanted = std::min(most, 2 * rows.uniform);
  }
  const std::uint64_t row_bytes =
      static_cast<std::uint64_t>(grant.plan.shape.hidden) * sizeof(Bf16);
  wanted = std::min(wanted, bounds.ring_bytes_max / (workers * bounds.credits * row_bytes));
  wanted = std::max(wanted, std::min<std::uint64_t>(most, kChunkRowsMin));
  return static_cast<std::uint32_t>(std::max(wanted, top_k));
}

StagingBytes SlotBytesOf(const BoundPlan& bound, WorkerOrdinal worker, std::uint32_t chunk_rows) {
  // All layers share the rings: the widest of them sizes the slots.
  const MoeShape& shape = bound.plan.shape;
  const std::size_t error = LayoutOfError(kErrorTextMax).frame_bytes;
  const std::size_t result = LayoutOfResult(chunk_rows, shape.hidden).frame_bytes;
  // Both rings have room for an error, since workers refuse rings of smaller slots.
  // Results are BF16 rows in every mode, whatever dtype the requests have.
  StagingBytes bytes{.dispatch = static_cast<std::int64_t>(error),
                     .combine = static_cast<std::int64_t>(std::max(result, error))};
  for (const BoundLayer& layer : bound.layers) {
    const Codec& codec = *layer.codecs[static_cast<std::size_t>(worker.value)];
    bytes.dispatch =
        std::max(bytes.dispatch, RequestBytes(layer, codec.format(), shape, chunk_rows));
  }
  return bytes;
}

}  // namespace switchyard
