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

}  // namespace

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
