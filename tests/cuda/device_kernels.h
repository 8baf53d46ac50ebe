// Plain kernels for the tests and benchmarks of the CUDA device: random inputs made on the device,
// and references that are slow and obvious. All enqueue on `stream` and end the program if they
// cannot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/decode/grouped_gemm.h"

namespace switchyard::cuda::testing {

void FillBf16(std::uint16_t* out, std::int64_t count, std::uint32_t seed, float amplitude,
              cudaStream_t stream);
// E4M3 codes of uniform values.
void FillFp8(std::byte* out, std::int64_t count, std::uint32_t seed, float amplitude,
             cudaStream_t stream);
void FillScales(float* out, std::int64_t count, std::uint32_t seed, float low, float high,
                cudaStream_t stream);
void FillInt8(std::byte* out, std::int64_t count, std::uint32_t seed, cudaStream_t stream);
// FP8 rows with random scales at `scale_offset`: `rows` rows, `stride` bytes apart. `sums`: with
// the sums of kInt4Fp8 beside the scales.
struct RandomRows {
  std::byte* out;
  std::int64_t rows;
  std::int64_t stride;
  std::int64_t scale_offset;
  std::int64_t k;
  bool sums = false;
};
void FillFp8Rows(const RandomRows& rows, std::uint32_t seed, float low, float high,
                 cudaStream_t stream);

// INT8 rows, each with one scale.
void FillInt8Rows(const RandomRows& rows, std::uint32_t seed, float low, float high,
                  cudaStream_t stream);

// Weights as the checkpoint has them: row-major [groups][n][k]; gate above up.
struct PlainWeights {
  const std::byte* data;
  const float* scales;
  std::int64_t n;
  std::int64_t k;
  WeightType type;
};

// out[slot][n] in FP64, for the slots of all groups; `slots` bounds them.
void ReferenceGemm(const GemmRows& rows, const GemmGroups& groups, std::int64_t slots,
                   const PlainWeights& weights, double* out, cudaStream_t stream);
// silu(gate) * up: gated[slot][2 n] -> hidden rows, E4M3 with a scale for each `group` values in
// FP32 at `scale_offset`, strides in bytes, by the codec's formula.
struct HiddenRows {
  std::byte* out;
  std::int64_t stride;
  std::int64_t scale_offset;
  std::int64_t n;
  int group;
};
void ReferenceSwiglu(const double* gated, std::int64_t slots, const HiddenRows& hidden,
                     cudaStream_t stream);
// out[slot][n] = rows (with a scale for each `group` values) times weights, in FP64.
void ReferenceSecond(const HiddenRows& hidden, const GemmGroups& groups, std::int64_t slots,
                     const PlainWeights& weights, double* out, cudaStream_t stream);

// For each slot that a group owns, the squared norms of out - reference and of reference; other
// slots get zeros. NaN in `out` makes the first one NaN.
struct RowError {
  double error;
  double reference;
};
void CompareRows(const GemmOutput& out, const double* reference, const GemmGroups& groups,
                 std::int64_t slots, std::int64_t n, RowError* errors, cudaStream_t stream);

// Reads `bytes` once with as many loads in flight as help: the floor of anything that reads them.
void ReadOnce(const std::byte* from, std::int64_t bytes, std::uint32_t* sink, cudaStream_t stream);
void CopyOnce(const std::byte* from, std::byte* to, std::int64_t bytes, cudaStream_t stream);
// Overwrites more than the L2 holds.
void Flush(std::byte* scratch, std::int64_t bytes, cudaStream_t stream);

}  // namespace switchyard::cuda::testing
