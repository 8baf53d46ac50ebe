#include "worker/device/cuda/gemm/tensor_map.h"

namespace switchyard::cuda {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeTiled FindEncoder() {
  constexpr unsigned kSince = 12000;  // the CUDA version that brought the symbol
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol,
                                                             kSince, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(symbol);
}

}  // namespace

cudaError_t EncodeTensorMap(const ByteMatrices& matrices, int box_rows, CUtensorMap* map) {
  static const EncodeTiled encode = FindEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint32_t rank = matrices.count == 0 ? 2 : 3;
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrices.row_bytes);
  const cuuint64_t rows = static_cast<cuuint64_t>(matrices.rows);
  const cuuint64_t sizes[3] = {row_bytes, rows, static_cast<cuuint64_t>(matrices.count)};
  const cuuint64_t step =
      matrices.step_rows == 0 ? rows : static_cast<cuuint64_t>(matrices.step_rows);
  const cuuint64_t stride =
      matrices.stride == 0 ? row_bytes : static_cast<cuuint64_t>(matrices.stride);
  const cuuint64_t strides[2] = {stride, stride * step};
  const cuuint32_t box[3] = {128, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, const_cast<void*>(matrices.data), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace switchyard::cuda
