// Weights of four bits: INT4 and NVFP4 as the grouped product streams them (grouped_gemm.h).
//
// A block is 128 rows x 128 k: the codes, in the order in which the threads of the tensor cores
// hold the operand, then the scales of each row. Products expand the codes in registers to what
// their rows are, so that a weight costs 4.5 bits of memory everywhere, or 4.25.
//
//   kInt4     to BF16: codes 0..15 above a least integer; this integer and an FP32 scale of the
//             128 k, eight bytes a row
//   kInt4Fp8  to E4M3: integers from -8 to 7 and an FP32 scale of the 128 k
//   kE2m1     to BF16: E2M1 codes, and a scale of four bits' significand for each 16 k, as in NVFP4
//
// Thread-safe. The functions enqueue kernels and allocate nothing. Errors: cudaErrorInvalidValue
// for sizes below one, another type or a misaligned pointer; else what the launch returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

// Which forms fail to hold some value of a matrix exactly: raised to 1, never lowered. Device
// memory.
struct NarrowMisfits {
  std::uint32_t int4 = 0;
  std::uint32_t int4_signed = 0;  // kInt4Fp8
  std::uint32_t e2m1 = 0;
};

// BF16 values, row-major [rows, columns]; what the last blocks lack counts as zeros.
struct NarrowSource {
  const std::uint16_t* values = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
cudaError_t FindNarrowMisfits(const NarrowSource& from, NarrowMisfits* misfits,
                              cudaStream_t stream);

// Rows that are multiplied by kInt4Fp8 have the sum of each 128 E4M3 codes beside their scale: the
// products make 2 v + 1 of a weight v. The sum comes times this unit and the scale.
constexpr float kInt4Fp8SumUnit = 1.0F / 512.0F;

// Scales of INT4: [rows / rows_of_scale, columns / 128], both rounded up; device memory, or
// null: 1.
struct NarrowScales {
  const float* values = nullptr;
  std::int32_t rows_of_scale = 1;
};

// One matrix in blocks, those along k neighbors: WeightBytesOf (packed_weights.h) the padded matrix
// bytes at `out`, 128-aligned. Every value has an exact code.
cudaError_t PackNarrow(const NarrowSource& from, WeightType type, const NarrowScales& scales,
                       std::byte* out, cudaStream_t stream);

}  // namespace switchyard::cuda
