// Tensor maps of row-major byte matrices, for copies of boxes of 128 bytes x some rows with the
// 128-byte swizzle. The driver's encoder is looked up at run time; nothing links against libcuda.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

namespace switchyard::cuda {

struct ByteMatrices {
  const void* data = nullptr;  // 16-aligned
  std::int64_t row_bytes = 0;  // a multiple of 16
  std::int64_t rows = 0;       // of one matrix; boxes read zeros beyond it
  std::int64_t count = 0;      // matrices; 0: the map has two dimensions
  std::int64_t step_rows = 0;  // from one matrix to the next; 0: `rows`
  std::int64_t stride = 0;     // bytes from row to row, a multiple of 16; 0: `row_bytes`
};

// Errors: cudaErrorNotSupported if the driver has no encoder, cudaErrorInvalidValue if it refuses
// the shape or the address. Thread-safe; about a microsecond.
[[nodiscard]] cudaError_t EncodeTensorMap(const ByteMatrices& matrices, int box_rows,
                                          CUtensorMap* map);

}  // namespace switchyard::cuda
