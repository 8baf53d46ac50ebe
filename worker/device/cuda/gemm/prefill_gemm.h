// Grouped products of prefill: rows of many experts in one matrix, each expert's rows times its own
// weights. Hopper only (sm_90a).
//
//   out[r, :] = a[r, :] x b[expert of r, :, :]^T
//
// Layout "contiguous". Rows of an expert stand together and begin at a multiple of 128:
//
//   row_ends[e]   the row after the last one of expert e, in device memory
//   first row     0 for expert 0, row_ends[e - 1] rounded up to a multiple of 128 for expert e
//
// so an expert without rows has row_ends[e] == its first row. The rows between row_ends[e] and the
// next multiple of 128 are padding: they are read, may hold anything, and what `out` holds for them
// afterwards means nothing. Rows behind the last expert's padding are neither read nor written. The
// counts stay on the device, so one captured graph serves every step up to `rows`.
//
// Launches allocate nothing, wait for nothing on the host and may be captured. Thread-safe. Each
// kernel starts with griddepcontrol.wait, so it may be a dependent launch.
//
// Errors of all: cudaErrorInvalidValue if a shape or an address breaks the rules here,
// cudaErrorNotSupported if the driver cannot encode tensor maps, or what the launch says.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace switchyard::cuda {

inline constexpr std::int64_t kSegmentRows = 128;  // experts begin at multiples of it

struct PrefillShape {
  const std::int32_t* row_ends = nullptr;  // device, [experts], ascending
  // Device, one word, zero before the first launch that is given it; every launch leaves it zero.
  // Launches that may run at the same time have one each.
  std::uint32_t* workspace = nullptr;
  std::int32_t experts = 0;  // > 0
  std::int64_t rows = 0;  // capacity of `a` and `out`: a multiple of 128, below 2^31
  std::int32_t n = 0;     // columns of out: a multiple of 128; multiples of 256 waste nothing
  std::int32_t k = 0;     // a multiple of 128, at least 256
};

// FP8 (E4M3) rows with a scale for each 128 values, weights with a scale for each 128 x 128. Sums
// of 128 products come from the tensor cores, and are added in FP32 times both scales.
struct PrefillFp8 {
  PrefillShape shape;
  const void* a = nullptr;          // [rows, k], 16-aligned
  const float* a_scales = nullptr;  // [k / 128, rows]: rows fastest, as the copy engine takes them
  const void* b = nullptr;          // [experts, n, k], 16-aligned
  const float* b_scales = nullptr;  // [experts, n / 128, k / 128]
  void* out = nullptr;              // BF16 [rows, n], 16-aligned
};
[[nodiscard]] cudaError_t LaunchPrefillFp8(const PrefillFp8& product, cudaStream_t stream);

// BF16 rows and weights, sums in FP32.
struct PrefillBf16 {
  PrefillShape shape;
  const void* a = nullptr;  // [rows, k], 16-aligned
  const void* b = nullptr;  // [experts, n, k], 16-aligned
  void* out = nullptr;      // BF16 [rows, n], 16-aligned
};
[[nodiscard]] cudaError_t LaunchPrefillBf16(const PrefillBf16& product, cudaStream_t stream);

}  // namespace switchyard::cuda
