// The products of prefill (prefill_gemm.h) for experts that were packed one by one, between the
// steps of a run (steps/expert_facts.h): weights lie where the products of decode read them, rows
// of an expert stand together and begin anywhere.
//
// The sums have the bits of GroupedGemm's (grouped_gemm.h): the same tensor core instructions over
// the same pieces of k in the same order, and the same FP32 operations behind them. So a caller may
// choose between the two by the number of rows.
//
// Launches allocate nothing, wait for nothing on the host and may be captured. Thread-safe. Errors:
// cudaErrorInvalidValue if a shape or an address breaks the rules here, cudaErrorNotSupported if
// the driver cannot encode tensor maps, or what the launch says.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

// Kernels read so many scales behind the last row.
constexpr std::int64_t kScalesBehind = 136;
// FP8 rows that stand together have so many values from one block of scales to the next.
constexpr std::int64_t ScaleStrideOf(std::int64_t rows) {
  return (rows + kScalesBehind + 3) / 4 * 4;
}

// Row r of slot r of the groups. Rows behind a group's are read and may hold anything.
struct PrefillRows {
  const std::byte* rows = nullptr;  // 16-aligned
  std::int64_t stride = 0;          // bytes, a multiple of 16
  std::int64_t count = 0;           // memory for so many rows
  // Device; or row index[s] of slot s, where rows lie elsewhere, below 64 GiB. Behind a group's it
  // may hold anything, and is read up to 128 slots behind the last group's.
  const std::int32_t* index = nullptr;
  // FP8: [k / 128] blocks of scales, rows fastest, `scale_stride` values from one to the next: a
  // multiple of 4, and memory for kScalesBehind values behind the last row; with an index [k / 128]
  // scales of each row, `scale_stride` values from row to row. INT8: a scale for each row,
  // `scale_stride` values from one to the next.
  const float* scales = nullptr;
  std::int64_t scale_stride = 0;
};

// Where a product may run. `units_taken`: one word of device memory for each stream, zero before
// the first launch; every launch that ends leaves it zero.
struct PrefillScratch {
  std::uint32_t* units_taken = nullptr;
  int sms = 0;  // that the launch takes, at least two; 0: all
};

struct PrefillSums {
  float* out = nullptr;     // [slot][n], 16-aligned
  std::int64_t stride = 0;  // values, a multiple of 4
};

// Sums rounded to BF16.
struct PrefillAnswers {
  std::uint16_t* out = nullptr;  // [slot][n], 16-aligned
  std::int64_t stride = 0;       // values, a multiple of 8
};

// Hidden rows: BF16(silu(gate) * up), as BF16 or, from FP8 rows, E4M3 with a scale for each 128.
struct PrefillHidden {
  std::byte* rows = nullptr;  // 16-aligned
  std::int64_t stride = 0;    // bytes, a multiple of 16
  float* scales = nullptr;    // FP8: as PrefillRows::scales
  std::int64_t scale_stride = 0;
};

// Whether the kernels take these weights: kRows128, given by group, at least 256 bytes of k.
[[nodiscard]] bool HasPrefillProduct(const PackedWeights& weights);

// `groups` have offsets. INT8 rows are multiplied by their scales here. No index.
[[nodiscard]] cudaError_t LaunchPrefillSums(const PrefillRows& rows, const GemmGroups& groups,
                                            const PackedWeights& weights, const PrefillSums& out,
                                            const PrefillScratch& scratch, cudaStream_t stream);

// Likewise, of FP8 and BF16.
[[nodiscard]] cudaError_t LaunchPrefillAnswers(const PrefillRows& rows, const GemmGroups& groups,
                                               const PackedWeights& weights,
                                               const PrefillAnswers& out,
                                               const PrefillScratch& scratch, cudaStream_t stream);

// The weights are gate's rows, then up's: n / 2 each, a multiple of 128. Not for INT8, whose
// rounding of h takes whole rows.
[[nodiscard]] cudaError_t LaunchPrefillHidden(const PrefillRows& rows, const GemmGroups& groups,
                                              const PackedWeights& weights,
                                              const PrefillHidden& out,
                                              const PrefillScratch& scratch, cudaStream_t stream);

}  // namespace switchyard::cuda
