#include "worker/device/cuda/backend/cuda_workspace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cuda/device_facts.h"
#include "worker/device/cuda/gemm/prefill_packed.h"
#include "worker/device/weights_check.h"

namespace switchyard {
namespace {

using cuda::kPad;
using cuda::Padded;

constexpr std::int64_t kSizeMax = std::int64_t{1} << 20;

std::size_t Lines(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PassLists::PassLists(std::size_t term_count, std::size_t row_count, std::size_t slots) {
  const auto place = [this](std::size_t size) {
    const std::size_t at = bytes;
    bytes = at + (size + 15) / 16 * 16;
    return at;
  };
  rows = place(row_count * sizeof(cuda::PassRow));
  terms = place(term_count * sizeof(cuda::PairTerm));
  offsets = place(slots * sizeof(std::int32_t));
  counts = place(cuda::kRoutes * slots * sizeof(std::int32_t));
}

absl::StatusOr<std::unique_ptr<CudaWorkspace>> CudaWorkspace::Create(const MoeShape& shape,
                                                                     std::int64_t pairs_max,
                                                                     CudaFault& fault) {
  if (shape.hidden < 1 || shape.intermediate < 1 || shape.hidden > kSizeMax ||
      shape.intermediate > kSizeMax) {
    return BadShape(shape, absl::StrCat("both must be from 1 to ", kSizeMax));
  }
  if (pairs_max < std::max(shape.top_k, 1)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("a workspace for ", pairs_max, " pairs is below the layer's top-",
                                  shape.top_k, "; a pass takes whole rows"));
  }
  std::unique_ptr<CudaWorkspace> space(new CudaWorkspace(shape, pairs_max));
  const auto pairs = static_cast<std::size_t>(pairs_max);
  const auto hidden = static_cast<std::size_t>(Padded(shape.hidden));
  const auto middle = static_cast<std::size_t>(Padded(shape.intermediate));
  int sms = 0;
  SY_RETURN_IF_ERROR(
      fault.Check(cuda::MultiprocessorsOfCurrentDevice(&sms), "counting multiprocessors"));
  const std::int64_t carry =
      cuda::CarryBytesOf(cuda::WeightOrder::kRows128, cuda::kRowTileMax, sms);
  const auto scales = static_cast<std::size_t>(cuda::ScaleStrideOf(pairs_max));
  const std::size_t sizes[] = {pairs * hidden * 2,
                               pairs * middle * 2,
                               pairs * middle * 2 * 4,
                               pairs * hidden * 4,
                               PassLists(space->terms_max(), pairs, space->slots_max_).bytes,
                               space->slots_max_ * 2 * sizeof(float),
                               hidden / kPad * scales * sizeof(float),
                               middle / kPad * scales * sizeof(float),
                               sizeof(std::uint32_t),
                               static_cast<std::size_t>(carry)};
  std::size_t bytes = 0;
  for (const std::size_t size : sizes) bytes += Lines(size);
  SY_ASSIGN_OR_RETURN(space->memory_, CudaMemory::OnDevice(static_cast<std::int64_t>(bytes), fault,
                                                           "the rows of a stream"));
  std::byte* at = space->memory_.data();
  const auto take = [&at](std::size_t size) {
    std::byte* const taken = at;
    at += Lines(size);
    return taken;
  };
  const auto row = [](std::size_t width) { return static_cast<std::int64_t>(2 * width); };
  space->inputs_ = {take(sizes[0]), row(hidden), static_cast<std::int64_t>(hidden)};
  space->middle_ = {take(sizes[1]), row(middle), static_cast<std::int64_t>(middle)};
  space->gate_up_ = reinterpret_cast<float*>(take(sizes[2]));
  space->down_ = reinterpret_cast<float*>(take(sizes[3]));
  space->lists_ = take(sizes[4]);
  space->amax_ = reinterpret_cast<float*>(take(sizes[5]));
  space->input_scales_ = reinterpret_cast<float*>(take(sizes[6]));
  space->middle_scales_ = reinterpret_cast<float*>(take(sizes[7]));
  space->scale_stride_ = static_cast<std::int64_t>(scales);
  space->units_taken_ = reinterpret_cast<std::uint32_t*>(take(sizes[8]));
  space->carry_ = {take(sizes[9]), carry};
  SY_RETURN_IF_ERROR(fault.Check(cudaMemset(space->units_taken_, 0, sizes[8]), "clearing a word"));
  SY_RETURN_IF_ERROR(
      fault.Check(cudaMemset(space->carry_.memory, 0, sizes[9]), "clearing carried sums"));
  return space;
}

// BF16 rows and FP32 sums of both products.
std::int64_t CudaWorkspace::PairBytes(const MoeShape& shape) {
  return Padded(shape.hidden) * (2 + 4) + Padded(shape.intermediate) * (2 + 2 * 4);
}

CudaWorkspace::CudaWorkspace(const MoeShape& shape, std::int64_t pairs_max)
    : shape_(shape),
      pairs_max_(static_cast<std::size_t>(pairs_max)),
      slots_max_(static_cast<std::size_t>(std::max(shape.experts, 1))) {
  rows_.resize(pairs_max_);
  slot_begin_.resize(slots_max_ + 1);
}

}  // namespace switchyard
