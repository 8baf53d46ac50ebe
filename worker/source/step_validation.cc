#include "worker/source/step_validation.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status Refuse(Reason reason, LayerId layer, const std::string& what,
                    const ErrorMetadata& more = {}) {
  ErrorMetadata metadata{{"layer", absl::StrCat(layer.value)}};
  metadata.insert(metadata.end(), more.begin(), more.end());
  return MakeError(absl::StatusCode::kInvalidArgument, reason,
                   absl::StrFormat("layer %d: %s", layer.value, what), metadata);
}

struct View {
  const char* name;
  const void* data;
  std::int64_t stride;
  std::int64_t columns;
  std::size_t alignment;
};

// A view may be strided by rows; its rows are dense, aligned to their element and do not overlap.
absl::Status CheckView(const View& view, const StepRequest& request) {
  if (view.data == nullptr) {
    return Refuse(Reason::kBadShape, request.layer, absl::StrFormat("%s is null", view.name));
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % view.alignment != 0) {
    return Refuse(Reason::kBadShape, request.layer,
                  absl::StrFormat("%s must be aligned to its %d-byte elements; copy it first",
                                  view.name, view.alignment));
  }
  if (request.tokens > 1 && view.stride < view.columns) {
    return Refuse(
        Reason::kBadShape, request.layer,
        absl::StrFormat("rows of %s are %d elements apart and %d long; pass dense rows, not "
                        "a transposed view",
                        view.name, view.stride, view.columns));
  }
  return absl::OkStatus();
}

absl::Status CheckLimits(const StepRequest& request, const BoundLayer& layer,
                         const OpenSessionRequest& order) {
  if (layer.mode != DispatchMode::kLowLatency) return absl::OkStatus();
  std::int32_t limit = layer.max_tokens_per_step;
  if (order.max_tokens > 0)
    limit = limit > 0 ? std::min(limit, order.max_tokens) : order.max_tokens;
  if (limit == 0 || request.tokens <= limit) return absl::OkStatus();
  return Refuse(Reason::kTooManyTokens, request.layer,
                absl::StrFormat("%d tokens exceed max_tokens_per_step %d of low_latency; split the "
                                "batch, or open a session in normal mode",
                                request.tokens, limit),
                {{"have", absl::StrCat(request.tokens)}, {"limit", absl::StrCat(limit)}});
}

absl::Status CheckNan(const StepRequest& request, std::int32_t hidden, const RowOps& ops) {
  for (std::int32_t t = 0; t < request.tokens; ++t) {
    if (!ops.HasNan(request.x + t * request.x_stride, hidden)) continue;
    return Refuse(
        Reason::kNanInput, request.layer,
        absl::StrFormat("row %d of x holds a NaN and the session is strict; mend the row or "
                        "open the session without strict",
                        t),
        {{"row", absl::StrCat(t)}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateStep(const StepRequest& request, const BoundPlan& binding,
                          const BoundLayer* layer, const OpenSessionRequest& order,
                          const RowOps& ops) {
  const MoeShape& shape = binding.plan.shape;
  if (layer == nullptr) {
    return MakeError(
        absl::StatusCode::kNotFound, Reason::kUnknownLayer,
        absl::StrFormat("model %s has no MoE layer %d; its layers are %d to %d", binding.plan.model,
                        request.layer.value, binding.plan.layers.front().layer.value,
                        binding.plan.layers.back().layer.value),
        {{"model", binding.plan.model}, {"layer", absl::StrCat(request.layer.value)}});
  }
  if (request.tokens < 0) {
    return Refuse(Reason::kBadShape, request.layer,
                  absl::StrFormat("%d tokens; a batch has 0 or more", request.tokens));
  }
  if (request.top_k != shape.top_k) {
    return Refuse(Reason::kBadTopK, request.layer,
                  absl::StrFormat("top-k is %d, the model's is %d; pad with id -1", request.top_k,
                                  shape.top_k),
                  {{"have", absl::StrCat(request.top_k)}, {"want", absl::StrCat(shape.top_k)}});
  }
  if (request.tokens == 0) return absl::OkStatus();
  const std::size_t y_size = order.y_dtype == OutputDtype::kBf16 ? sizeof(Bf16) : sizeof(float);
  SY_RETURN_IF_ERROR(
      CheckView({"x", request.x, request.x_stride, shape.hidden, sizeof(Bf16)}, request));
  SY_RETURN_IF_ERROR(CheckView(
      {"ids", request.ids, request.ids_stride, shape.top_k, sizeof(std::int32_t)}, request));
  SY_RETURN_IF_ERROR(CheckView(
      {"weights", request.weights, request.weights_stride, shape.top_k, sizeof(float)}, request));
  SY_RETURN_IF_ERROR(CheckView({"y", request.y, request.y_stride, shape.hidden, y_size}, request));
  SY_RETURN_IF_ERROR(CheckLimits(request, *layer, order));
  if (order.strict) return CheckNan(request, shape.hidden, ops);
  return absl::OkStatus();
}

}  // namespace switchyard
