// What the launches of the prefill kernels share: checks, tensor maps and the cluster launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/device/cuda/gemm/prefill_gemm.h"
#include "worker/device/cuda/gemm/prefill_kernel.cuh"
#include "worker/device/cuda/gemm/tensor_map.h"

namespace switchyard::cuda {

inline bool IsAligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

inline bool IsValid(const PrefillShape& shape) {
  return shape.row_ends != nullptr && shape.workspace != nullptr && shape.experts > 0 && shape.rows >= 0 &&
         shape.rows < (std::int64_t{1} << 31) && shape.rows % kSegmentRows == 0 && shape.n > 0 &&
         shape.n % 128 == 0 && shape.k >= 256 && shape.k % 128 == 0;
}

// One block on each SM, in whole clusters.
template <int Cluster, typename Shared, typename Kernel>
cudaError_t LaunchPersistent(Kernel kernel, const PrefillArgs& args, const CUtensorMap& a,
                             const CUtensorMap& b, cudaStream_t stream) {
  int device = 0;
  int processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = Cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(processors / Cluster * Cluster));
  config.blockDim = dim3(kPrefillThreads);
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args, a, b);
}

// `a`, `b`: operands whose rows are `row_bytes` long.
template <bool Fp8, int Cluster, int Columns, int Stages, bool Turns>
cudaError_t LaunchPrefillAs(const PrefillShape& shape, const void* a, const void* b,
                            std::int64_t row_bytes, PrefillArgs args, cudaStream_t stream) {
  using Shared = PrefillShared<Columns, Stages>;
  CUtensorMap a_map;
  CUtensorMap b_map;
  cudaError_t error = EncodeTensorMap({a, row_bytes, shape.rows, 0}, kTileRows, &a_map);
  if (error != cudaSuccess) return error;
  error = EncodeTensorMap({b, row_bytes, shape.n, shape.experts}, Shared::kBoxRows, &b_map);
  if (error != cudaSuccess) return error;
  args.row_ends = shape.row_ends;
  args.units_taken = shape.workspace;
  args.experts = shape.experts;
  args.rows_max = static_cast<int>(shape.rows);
  args.column_blocks = (shape.n + Columns - 1) / Columns;
  args.n = shape.n;
  args.k_blocks = static_cast<int>(row_bytes / kStageDepth);
  return LaunchPersistent<Cluster, Shared>(PrefillKernel<Fp8, Cluster, Columns, Stages, Turns>,
                                           args, a_map, b_map, stream);
}

template <int Cluster, int Columns, int Stages, bool Turns>
cudaError_t LaunchFp8As(const PrefillFp8& product, int band, cudaStream_t stream) {
  const PrefillShape& shape = product.shape;
  if (!IsValid(shape) || !IsAligned(product.a) || !IsAligned(product.b) ||
      !IsAligned(product.a_scales) || product.b_scales == nullptr || !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  if (shape.rows == 0) return cudaSuccess;
  PrefillArgs args = {};
  args.band = band;
  args.a_scales = product.a_scales;
  args.a_scales_row = shape.rows;
  args.b_scales = product.b_scales;
  args.out = static_cast<__nv_bfloat16*>(product.out);
  return LaunchPrefillAs<true, Cluster, Columns, Stages, Turns>(shape, product.a, product.b,
                                                                shape.k, args, stream);
}

template <int Cluster, int Stages>
cudaError_t LaunchBf16As(const PrefillBf16& product, int band, cudaStream_t stream) {
  const PrefillShape& shape = product.shape;
  if (!IsValid(shape) || !IsAligned(product.a) || !IsAligned(product.b) ||
      !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  if (shape.rows == 0) return cudaSuccess;
  PrefillArgs args = {};
  args.band = band;
  args.out = static_cast<__nv_bfloat16*>(product.out);
  return LaunchPrefillAs<false, Cluster, 256, Stages, false>(
      shape, product.a, product.b, std::int64_t{shape.k} * 2, args, stream);
}

}  // namespace switchyard::cuda
