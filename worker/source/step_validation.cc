#include "worker/source/step_validation.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"

namespace switchyard {
namespace {

absl::Status Refuse(Reason reason, LayerId layer, const std::string& what,
                    const ErrorMetadata& more = {}) {
  ErrorMetadata metadata{{"layer", absl::StrCat(layer.value)}};
  metadata.insert(metadata.end(), more.begin(), more.end());
  return MakeError(absl::StatusCode::kInvalidArgument, reason,
                   absl::StrFormat("layer %d: %s", layer.value, what), metadata);
}

// A [tokens, columns] view of the caller's memory, by its name in the request.
struct View {
  const char* name;
  const void* data;
  std::int64_t stride;
  std::int64_t columns;
  std::size_t alignment;
  bool host_memory;  // it should be
};

// False for an address that the system would not let this process read. A call that fails in any
// case looks at its argument first, and no filter of calls forbids this one.
bool HostCanRead(const void* address) {
  constexpr std::uintptr_t kWord = 8;  // the kernel's set of signals, which is what it reads
  constexpr int kNoSuchAction = -1;
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(address) / kWord * kWord;
  return syscall(SYS_rt_sigprocmask, kNoSuchAction, at, nullptr, kWord) == 0 || errno != EFAULT;
}

// A view may be strided by rows; its rows are dense, aligned to their element and do not overlap.
absl::Status CheckView(const View& view, const StepRequest& request) {
  if (view.data == nullptr) {
    return Refuse(Reason::kBadShape, request.layer, absl::StrFormat("%s is null", view.name));
  }
  // The kernels read whole elements; an address between two is a fault on some CPUs.
  if (reinterpret_cast<std::uintptr_t>(view.data) % view.alignment != 0) {
    return Refuse(Reason::kBadShape, request.layer,
                  absl::StrFormat("%s must be aligned to its %d-byte elements; copy it first",
                                  view.name, view.alignment));
  }
  // Such memory would end the process when it is read, perhaps in another thread.
  if (view.host_memory && !HostCanRead(view.data)) {
    return Refuse(Reason::kBadRequest, request.layer,
                  absl::StrFormat("%s is not memory that the host can read; if it is a GPU's, name "
                                  "the device when the client is opened",
                                  view.name),
                  {{"field", view.name}});
  }
  // A single row's stride may be 0, which claims nothing. Any other must hold a row also then: it
  // is how a caller says how wide its memory is, and y is written as wide as the model is.
  const bool unused = request.tokens == 1 && view.stride == 0;
  if (!unused && view.stride < view.columns) {
    return Refuse(
        Reason::kBadShape, request.layer,
        absl::StrFormat("rows of %s are %d elements apart and %d long; pass dense rows, not "
                        "a transposed view",
                        view.name, view.stride, view.columns));
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const StepRequest& request, std::int32_t limit) {
  if (limit == 0 || request.tokens <= limit) return absl::OkStatus();
  return Refuse(Reason::kTooManyTokens, request.layer,
                absl::StrFormat("%d tokens exceed max_tokens_per_step %d of low_latency; split the "
                                "batch, or open a session in normal mode",
                                request.tokens, limit),
                {{"have", absl::StrCat(request.tokens)}, {"limit", absl::StrCat(limit)}});
}

absl::Status NanIn(const char* what, std::int64_t row, LayerId layer) {
  return Refuse(
      Reason::kNanInput, layer,
      absl::StrFormat("row %d of %s contains a NaN and the session is strict; correct the "
                      "row or open the session without strict",
                      row, what),
      {{"row", absl::StrCat(row)}});
}

// The weight of id -1 is not used, so it may be anything.
std::optional<std::int64_t> FirstRowWithNanWeight(const StepRequest& request) {
  for (std::int64_t row = 0; row < request.tokens; ++row) {
    for (std::int64_t k = 0; k < request.top_k; ++k) {
      if (request.ids[row * request.ids_stride + k] < 0) continue;
      if (std::isnan(request.weights[row * request.weights_stride + k])) return row;
    }
  }
  return std::nullopt;
}

absl::Status CheckNan(const StepRequest& request, std::int32_t hidden) {
  const std::optional<std::int64_t> row = FirstNanRow(
      {.data = request.x, .rows = request.tokens, .columns = hidden, .stride = request.x_stride});
  if (row.has_value()) return NanIn("x", *row, request.layer);
  const std::optional<std::int64_t> weight = FirstRowWithNanWeight(request);
  return weight.has_value() ? NanIn("weights", *weight, request.layer) : absl::OkStatus();
}

}  // namespace

std::int32_t MaxTokens(DispatchMode mode, std::int32_t plan_max,
                       const OpenSessionRequest& request) {
  if (mode != DispatchMode::kLowLatency) return 0;
  if (plan_max == 0 || request.max_tokens == 0) return std::max(plan_max, request.max_tokens);
  return std::min(plan_max, request.max_tokens);
}

absl::Status UnknownLayer(const Plan& plan, LayerId layer) {
  return MakeError(
      absl::StatusCode::kNotFound, Reason::kUnknownLayer,
      absl::StrFormat("model %s has no MoE layer %d; its layers are %d to %d", plan.model,
                      layer.value, plan.layers.front().layer.value, plan.layers.back().layer.value),
      {{"model", plan.model}, {"layer", absl::StrCat(layer.value)}});
}

absl::Status ValidateStep(const StepRequest& request, const StepLimits& limits) {
  if (request.y_on_stream && !limits.y_on_stream) {
    return Refuse(Reason::kBadRequest, request.layer,
                  "only in a collective session of a client with a device can a stream go on "
                  "behind a step; leave y_on_stream 0 and wait for the step",
                  {{"field", "y_on_stream"}});
  }
  const MoeShape& shape = limits.shape;
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
  if (limits.host_memory && request.stream != nullptr) {
    return Refuse(Reason::kBadRequest, request.layer,
                  "the step names a stream, and its session's tensors are memory of the host; name "
                  "the device when the client is opened",
                  {{"field", "stream"}});
  }
  // A batch without rows may come without memory.
  if (request.tokens == 0) return absl::OkStatus();
  const std::size_t y_size = limits.y_dtype == OutputDtype::kBf16 ? sizeof(Bf16) : sizeof(float);
  const bool host = limits.host_memory;
  const bool rows = host && !request.on_device;
  const View views[] = {
      {"x", request.x, request.x_stride, shape.hidden, sizeof(Bf16), rows},
      {"ids", request.ids, request.ids_stride, shape.top_k, sizeof(std::int32_t), host},
      {"weights", request.weights, request.weights_stride, shape.top_k, sizeof(float), host},
      {"y", request.y, request.y_stride, shape.hidden, y_size, rows}};
  for (const View& view : views) SY_RETURN_IF_ERROR(CheckView(view, request));
  SY_RETURN_IF_ERROR(CheckTokens(request, limits.max_tokens));
  // Last: it is the only check that reads the rows.
  return limits.strict && rows ? CheckNan(request, shape.hidden) : absl::OkStatus();
}

}  // namespace switchyard
