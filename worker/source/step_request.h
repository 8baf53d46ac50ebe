// One layer for one batch, and the ticket that names it from Submit to Take.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/clock.h"
#include "core/format/bf16.h"
#include "core/ids.h"

namespace switchyard {

// All memory stays valid and unchanged (y: untouched) from Submit until Take has returned, or until
// the session is closed: rows are read and sums are written in place, without a copy. Strides count
// elements from one row to the next; a row itself is dense. A step of one token may leave them 0.
// Where the session's tensors lie on a device, the four pointers are memory that it reaches: its
// own, or pinned memory of the host. Elsewhere they are memory of the host.
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
  // A stream of the tensors' device (Stream::WaitFor): x, ids and weights are read, and y is
  // written, after what it holds at Submit. Null where tensors are memory of the host.
  void* stream = nullptr;
  // Work that `stream` gets after Submit has returned reads the whole y, and nobody has to wait;
  // Take says whether it was a result. Only in a collective session (StepLimits::y_on_stream).
  bool y_on_stream = false;
  // x and y are memory of the device of the session's tensors, and what is in x is complete; ids
  // and weights are memory of the host. Only between runners (StepLimits::device_tokens_min).
  bool on_device = false;
};

// A batch whose rows follow each other without gaps, the usual case; RequestOf fills in the
// strides.
struct DenseBatch {
  LayerId layer;
  std::int32_t hidden = 0;
  std::int32_t top_k = 0;
  std::span<const Bf16> x{};            // [tokens, hidden]
  std::span<const std::int32_t> ids{};  // [tokens, top_k]; its size gives the tokens
  std::span<const float> weights{};     // [tokens, top_k]
  void* y = nullptr;                    // [tokens, hidden]
};

// The request for a dense batch, with the session's deadline.
inline StepRequest RequestOf(const DenseBatch& batch) {
  StepRequest request;
  request.layer = batch.layer;
  request.tokens = batch.top_k > 0 ? static_cast<std::int32_t>(batch.ids.size()) / batch.top_k : 0;
  request.x = batch.x.data();
  request.x_stride = batch.hidden;
  request.ids = batch.ids.data();
  request.ids_stride = batch.top_k;
  request.weights = batch.weights.data();
  request.weights_stride = batch.top_k;
  request.top_k = batch.top_k;
  request.y = batch.y;
  request.y_stride = batch.hidden;
  return request;
}

// Names a submitted step to its submitter; good for one Take. The generation distinguishes it from
// later steps in the same slot, so a second use is refused.
struct StepTicket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  friend constexpr bool operator==(const StepTicket&, const StepTicket&) = default;
};

}  // namespace switchyard
