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
  return shape.row_ends != nullptr && shape.experts > 0 && shape.rows >= 0 &&
         shape.rows < (std::int64_t{1} << 31) && shape.rows % kSegmentRows == 0 && shape.n > 0 &&
         shape.n % 128 == 0 && shape.k >= 256 && shape.k % 128 == 0;
}

struct PrefillMaps {
  CUtensorMap a;
  CUtensorMap b[2];
  CUtensorMap out;
};

// One block on each SM, in whole clusters.
template <int Cluster, int Stages, typename Kernel>
cudaError_t LaunchPersistent(Kernel kernel, const PrefillArgs& args, const PrefillMaps& maps,
                             cudaStream_t stream) {
  constexpr int kBytes = sizeof(PrefillShared<Stages>);
  int device = 0;
  int processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = Cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(processors / Cluster * Cluster));
  config.blockDim = dim3(kPrefillThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args, maps.a, maps.b[0], maps.b[1], maps.out);
}

template <int Cluster, int Stages, bool Turns, bool Late>
cudaError_t LaunchFp8As(const PrefillFp8& product, int band, cudaStream_t stream) {
  const PrefillShape& shape = product.shape;
  if (!IsValid(shape) || !IsAligned(product.a) || !IsAligned(product.b) ||
      !IsAligned(product.a_scales) || product.b_scales == nullptr || !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  if (shape.rows == 0) return cudaSuccess;
  PrefillMaps maps;
  cudaError_t error = EncodeTensorMap({product.a, shape.k, shape.rows, 0}, kBoxRows, &maps.a);
  if (error != cudaSuccess) return error;
  error = EncodeTensorMap({product.b, shape.k, shape.n, shape.experts}, kBoxRows, &maps.b[0]);
  if (error != cudaSuccess) return error;
  maps.b[1] = maps.b[0];
  error = EncodeTensorMap({product.out, std::int64_t{shape.n} * 2, shape.rows, 0}, kStoreRows,
                          &maps.out);
  if (error != cudaSuccess) return error;
  const PrefillArgs args{.row_ends = shape.row_ends,
                         .experts = shape.experts,
                         .rows_max = static_cast<int>(shape.rows),
                         .column_blocks = (shape.n + kTileColumns - 1) / kTileColumns,
                         .k_blocks = shape.k / kStageDepth,
                         .band = band,
                         .b_step = kTileColumns,
                         .b_second = kBoxRows,
                         .a_scales = product.a_scales,
                         .a_scales_row = shape.rows,
                         .b_scales = {product.b_scales, product.b_scales},
                         .b_scale_rows = shape.n / 128};
  return LaunchPersistent<Cluster, Stages>(PrefillKernel<true, Cluster, Stages, Turns, Late>, args,
                                           maps, stream);
}

template <int Cluster, int Stages>
cudaError_t LaunchBf16As(const PrefillBf16& product, int band, cudaStream_t stream) {
  const PrefillShape& shape = product.shape;
  if (!IsValid(shape) || !IsAligned(product.a) || !IsAligned(product.b) ||
      !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  if (shape.rows == 0) return cudaSuccess;
  PrefillMaps maps;
  const std::int64_t row_bytes = std::int64_t{shape.k} * 2;
  cudaError_t error = EncodeTensorMap({product.a, row_bytes, shape.rows, 0}, kBoxRows, &maps.a);
  if (error != cudaSuccess) return error;
  error = EncodeTensorMap({product.b, row_bytes, shape.n, shape.experts}, kBoxRows, &maps.b[0]);
  if (error != cudaSuccess) return error;
  maps.b[1] = maps.b[0];
  error = EncodeTensorMap({product.out, std::int64_t{shape.n} * 2, shape.rows, 0}, kStoreRows,
                          &maps.out);
  if (error != cudaSuccess) return error;
  const PrefillArgs args{.row_ends = shape.row_ends,
                         .experts = shape.experts,
                         .rows_max = static_cast<int>(shape.rows),
                         .column_blocks = (shape.n + kTileColumns - 1) / kTileColumns,
                         .k_blocks = static_cast<int>(row_bytes / kStageDepth),
                         .band = band,
                         .b_step = kTileColumns,
                         .b_second = kBoxRows,
                         .a_scales = nullptr,
                         .a_scales_row = 0,
                         .b_scales = {nullptr, nullptr},
                         .b_scale_rows = 0};
  return LaunchPersistent<Cluster, Stages>(PrefillKernel<false, Cluster, Stages, false, false>,
                                           args, maps, stream);
}

}  // namespace switchyard::cuda
