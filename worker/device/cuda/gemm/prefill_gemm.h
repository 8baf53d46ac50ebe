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

#include <cstdint>

#include <cuda_runtime.h>

namespace switchyard::cuda {

inline constexpr std::int64_t kSegmentRows = 128;  // experts begin at multiples of it

struct PrefillShape {
  const std::int32_t* row_ends = nullptr;  // device, [experts], ascending
  // Device, one word, zero before the first launch that is given it; every launch that ends leaves
  // it zero. Launches that may run at the same time have one each.
  std::uint32_t* workspace = nullptr;
  std::int32_t experts = 0;  // > 0
  std::int64_t rows = 0;     // capacity of `a` and `out`: a multiple of 128, below 2^31
  std::int32_t n = 0;        // columns of out: a multiple of 128; multiples of 256 waste nothing
  std::int32_t k = 0;        // a multiple of 128, at least 256
};

// Rows of `a` that do not stand together: row r of the layout above is row rows[r] of `a`.
struct PrefillGather {
  // Device, [shape.rows]; null: `a` has the layout above itself.
  const std::int32_t* rows = nullptr;
  std::int64_t source_rows = 0;   // of `a`; an index outside (as padding may have) reads row 0
  std::int64_t row_bytes = 0;     // from one row of `a` to the next, a multiple of 16; `a` < 64 GiB
  std::int64_t scales_row = 0;    // FP8: values from the scales of one row to those of the next
  std::int64_t scales_block = 0;  // FP8: from the scale of one block of 128 to that of the next
};

// FP8 (E4M3) rows with a scale for each 128 values, weights with a scale for each 128 x 128. Sums
// of 128 products come from the tensor cores, and are added in FP32 times both scales.
struct PrefillFp8 {
  PrefillShape shape;
  const void* a = nullptr;          // [rows, k], 16-aligned
  const float* a_scales = nullptr;  // [k / 128, rows] (rows fastest: the copy engine), 16-aligned
  PrefillGather gather;
  const void* b = nullptr;          // [experts, n, k], 16-aligned
  const float* b_scales = nullptr;  // [experts, n / 128, k / 128]
  void* out = nullptr;              // BF16 [rows, n], 16-aligned
};
[[nodiscard]] cudaError_t LaunchPrefillFp8(const PrefillFp8& product, cudaStream_t stream);

// BF16 rows and weights, sums in FP32.
struct PrefillBf16 {
  PrefillShape shape;
  const void* a = nullptr;  // [rows, k], 16-aligned
  PrefillGather gather;
  const void* b = nullptr;  // [experts, n, k], 16-aligned
  void* out = nullptr;      // BF16 [rows, n], 16-aligned
};
[[nodiscard]] cudaError_t LaunchPrefillBf16(const PrefillBf16& product, cudaStream_t stream);

// The first product of an expert with SwiGLU and the quantization of its rows behind it:
//
//   h = bf16(silu(a x gate^T) * (a x up^T))
//   amax' = max(1e-4, amax); scale = amax' / 448; out = e4m3(h * (448 / amax'))    of each 128 of h
//
// shape.n is the number of columns of h. A group with a NaN or an infinity gets scale NaN and codes
// 0x7f. `out` and `out_scales` are what the second product takes as `a` and `a_scales`.
struct PrefillFp8Swiglu {
  PrefillShape shape;
  const void* a = nullptr;          // as PrefillFp8
  const float* a_scales = nullptr;  // as PrefillFp8
  PrefillGather gather;
  // Expert e's rows begin expert_rows * e behind these; [n, k] each, 16-aligned. expert_rows is n
  // where gate and up are tensors apart, 2 n where they are halves of one; a multiple of 128.
  const void* gate = nullptr;
  const void* up = nullptr;
  std::int64_t expert_rows = 0;
  const float* gate_scales = nullptr;  // in the same way, [n / 128, k / 128] each
  const float* up_scales = nullptr;
  void* out = nullptr;          // E4M3 [rows, n], 16-aligned
  float* out_scales = nullptr;  // [n / 128, rows], 16-aligned
};
[[nodiscard]] cudaError_t LaunchPrefillFp8Swiglu(const PrefillFp8Swiglu& product,
                                                 cudaStream_t stream);

}  // namespace switchyard::cuda
