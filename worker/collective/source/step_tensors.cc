#include "worker/collective/source/step_tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/routing/dispatch_plan.h"

namespace switchyard {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::int32_t kReservedMin = 256;  // tokens

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t BytesOf(OutputDtype dtype) { return dtype == OutputDtype::kF32 ? 4 : 2; }

// The offsets of the four tensors, and the size of all.
struct Offsets {
  explicit Offsets(const HostTensors::Size& size) {
    const auto rows = static_cast<std::size_t>(size.tokens_max);
    const std::size_t values = rows * static_cast<std::size_t>(size.shape.hidden);
    const std::size_t choices = rows * static_cast<std::size_t>(size.shape.top_k);
    ids = Aligned(values * sizeof(Bf16));
    weights = ids + Aligned(choices * sizeof(std::int32_t));
    y = weights + Aligned(choices * sizeof(float));
    all = y + Aligned(values * BytesOf(size.y_dtype));
  }

  std::size_t ids = 0;
  std::size_t weights = 0;
  std::size_t y = 0;
  std::size_t all = 0;
};

// Strides count elements. A single row's may be anything.
struct Rows {
  std::size_t count;
  std::size_t bytes;
  std::size_t to_stride;
  std::size_t from_stride;
};

void CopyRows(void* to, const void* from, const Rows& rows) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  if (rows.to_stride == rows.bytes && rows.from_stride == rows.bytes) {
    std::memcpy(target, source, rows.count * rows.bytes);
    return;
  }
  for (std::size_t row = 0; row < rows.count; ++row) {
    std::memcpy(target + row * rows.to_stride, source + row * rows.from_stride, rows.bytes);
  }
}

bool IsAligned16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

absl::StatusOr<bool> NeedCopies(const DeviceBackend& device, absl::string_view device_name,
                                const StepRequest& request) {
  if (device.host_access() || request.tokens == 0) return false;
  const std::pair<const char*, const void*> tensors[] = {
      {"x", request.x}, {"ids", request.ids}, {"weights", request.weights}, {"y", request.y}};
  std::string of_host;
  std::size_t count = 0;
  for (const auto& [name, address] : tensors) {
    SY_ASSIGN_OR_RETURN(const MemoryKind kind, device.KindAt(address));
    if (kind != MemoryKind::kHost) continue;
    absl::StrAppend(&of_host, count++ == 0 ? "" : ", ", name);
  }
  if (count == 0 || count == std::size(tensors)) return count > 0;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrFormat("%s: memory that %s does not reach, and the other tensors are "
                                   "its own; pass all of one kind, or pinned memory of the host",
                                   of_host, device_name));
}

absl::Status CheckDense(const StepRequest& request, std::int32_t hidden) {
  if (request.tokens == 0) return absl::OkStatus();
  const bool one = request.tokens == 1;
  const auto dense = [one](std::int64_t stride, std::int64_t row) { return one || stride == row; };
  if (dense(request.x_stride, hidden) && dense(request.y_stride, hidden) &&
      dense(request.ids_stride, request.top_k) && dense(request.weights_stride, request.top_k) &&
      IsAligned16(request.x) && IsAligned16(request.y)) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                   "a collective session takes tensors whose rows follow each other, x and y at "
                   "multiples of 16 bytes; copy them, or use binding p2p (--transport auto)");
}

absl::Status CheckDeadline(const StepRequest& request, Duration session) {
  if (request.deadline == Duration{} || request.deadline == session) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
      absl::StrFormat("the steps of a collective session have its deadline, %d ms, and none of "
                      "their own; leave it 0, or open the session with another",
                      std::chrono::duration_cast<std::chrono::milliseconds>(session).count()));
}

absl::Status CheckStepIds(const StepRequest& request, std::int32_t experts) {
  const auto choices =
      static_cast<std::size_t>(request.tokens) * static_cast<std::size_t>(request.top_k);
  return CheckRouting(
      {.ids = {request.ids, choices}, .tokens = request.tokens, .top_k = request.top_k}, experts);
}

absl::StatusOr<std::unique_ptr<HostTensors>> HostTensors::Make(DeviceBackend* device,
                                                               const Size& size) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory,
                      device->Allocate(Offsets(size).all, MemoryKind::kPinnedHost));
  return std::unique_ptr<HostTensors>(new HostTensors(size, std::move(memory)));
}

HostTensors::HostTensors(const Size& size, std::unique_ptr<Buffer> memory)
    : size_(size), memory_(std::move(memory)) {
  const Offsets at(size);
  std::byte* const base = memory_->data();
  x_ = reinterpret_cast<Bf16*>(base);
  ids_ = reinterpret_cast<std::int32_t*>(base + at.ids);
  weights_ = reinterpret_cast<float*>(base + at.weights);
  y_ = base + at.y;
}

absl::Status HostTensors::Reserve(DeviceBackend* device, const Size& most, std::int32_t tokens,
                                  std::unique_ptr<HostTensors>* tensors) {
  if (*tensors != nullptr && (*tensors)->size_.tokens_max >= tokens) return absl::OkStatus();
  // Twice as many at each turn.
  const std::uint32_t enough =
      std::bit_ceil(static_cast<std::uint32_t>(std::max(tokens, kReservedMin)));
  Size size = most;
  size.tokens_max = static_cast<std::int32_t>(std::min<std::int64_t>(enough, most.tokens_max));
  SY_ASSIGN_OR_RETURN(*tensors, Make(device, size));
  return absl::OkStatus();
}

StepRequest HostTensors::Take(const StepRequest& request) {
  request_ = request;
  const auto count = static_cast<std::size_t>(request.tokens);
  const auto copy = [count](auto* to, const auto* from, std::int32_t columns, std::int64_t stride) {
    const std::size_t bytes = static_cast<std::size_t>(columns) * sizeof(*from);
    CopyRows(to, from, {count, bytes, bytes, static_cast<std::size_t>(stride) * sizeof(*from)});
  };
  copy(x_, request.x, size_.shape.hidden, request.x_stride);
  copy(ids_, request.ids, size_.shape.top_k, request.ids_stride);
  copy(weights_, request.weights, size_.shape.top_k, request.weights_stride);
  StepRequest copied = request;
  copied.x = x_;
  copied.ids = ids_;
  copied.weights = weights_;
  copied.y = y_;
  copied.x_stride = copied.y_stride = size_.shape.hidden;
  copied.ids_stride = copied.weights_stride = size_.shape.top_k;
  return copied;
}

void HostTensors::Give() const {
  const std::size_t element = BytesOf(size_.y_dtype);
  const std::size_t bytes = static_cast<std::size_t>(size_.shape.hidden) * element;
  CopyRows(request_.y, y_,
           {static_cast<std::size_t>(request_.tokens), bytes,
            static_cast<std::size_t>(request_.y_stride) * element, bytes});
}

}  // namespace switchyard
