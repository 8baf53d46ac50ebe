// The launches of the prefill kernels share these checks, tensor maps and the cluster launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "worker/device/cuda/gemm/prefill_gemm.h"
#include "worker/device/cuda/gemm/prefill_kernel.cuh"
#include "worker/device/cuda/gemm/tensor_map.h"

namespace switchyard::cuda {

inline bool IsAligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

inline bool IsValid(const PrefillShape& shape) {
  return shape.row_ends != nullptr && shape.workspace != nullptr && shape.experts > 0 &&
         shape.rows >= 0 && shape.rows < (std::int64_t{1} << 31) &&
         shape.rows % kSegmentRows == 0 && shape.n > 0 && shape.n % 128 == 0 && shape.k >= 256 &&
         shape.k % 128 == 0;
}

// `row_bytes`: what a row of the product reads of `a`.
inline bool IsValid(const PrefillGather& gather, std::int64_t row_bytes, bool fp8) {
  if (gather.rows == nullptr) return true;
  return gather.source_rows > 0 && gather.source_rows < (std::int64_t{1} << 31) &&
         gather.row_bytes >= row_bytes && gather.row_bytes % 16 == 0 &&
         gather.source_rows <= (std::int64_t{1} << 36) / gather.row_bytes &&
         (!fp8 || (gather.scales_row > 0 && gather.scales_block > 0));
}

// Scales that the copy engine takes stand at multiples of 16 bytes, gathered ones anywhere.
inline bool IsValidScales(const float* scales, const PrefillGather& gather) {
  return gather.rows != nullptr ? scales != nullptr : IsAligned(scales);
}

inline constexpr int kPrefillCluster = 2;
inline constexpr int kPrefillStages = 4;

// One block on each SM that it may take (0: all), in whole clusters.
template <PrefillKind Kind, bool Gather>
cudaError_t LaunchPersistent(const PrefillArgs& args, const CUtensorMap& a, const CUtensorMap& b0,
                             const CUtensorMap& b1, cudaStream_t stream, int sms = 0) {
  const auto kernel = PrefillKernel<Kind, Gather, kPrefillCluster, kPrefillStages>;
  constexpr std::size_t kBytes = sizeof(PrefillShared<kPrefillStages>);
  int device = 0;
  int processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  if (sms != 0) processors = std::min(processors, sms);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kPrefillCluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(processors / kPrefillCluster * kPrefillCluster));
  config.blockDim = dim3(kPrefillThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args, a, b0, b1);
}

struct PrefillOperands {
  const void* a;
  std::int64_t row_bytes;  // of a and b
  const void* b[2];        // of each box; twice the same for one matrix
  std::int64_t b_expert_rows;
};

// Fills in what follows from the shape and the operands, and launches.
template <PrefillKind Kind>
cudaError_t LaunchPrefillAs(const PrefillShape& shape, const PrefillGather& gather,
                            const PrefillOperands& operands, PrefillArgs args,
                            cudaStream_t stream) {
  if (shape.rows == 0) return cudaSuccess;
  CUtensorMap a = {};
  CUtensorMap b[2];
  cudaError_t error = cudaSuccess;
  if (gather.rows == nullptr) {
    error = EncodeTensorMap({operands.a, operands.row_bytes, shape.rows, 0, 0}, kTileRows, &a);
  }
  for (int i = 0; i < 2 && error == cudaSuccess; ++i) {
    error = EncodeTensorMap(
        {operands.b[i], operands.row_bytes, shape.n, shape.experts, operands.b_expert_rows},
        kBoxRows, &b[i]);
  }
  if (error != cudaSuccess) return error;
  const bool pair = IsGated(Kind);  // a box from each of two matrices
  args.row_ends = shape.row_ends;
  args.units_taken = shape.workspace;
  args.experts = shape.experts;
  args.rows_max = static_cast<int>(shape.rows);
  args.b_step = pair ? kBoxRows : 2 * kBoxRows;
  args.b_second = pair ? 0 : kBoxRows;
  args.b_blocks = shape.n / kBoxRows;
  args.b_expert_blocks = static_cast<int>(operands.b_expert_rows / kBoxRows);
  args.column_blocks = (shape.n + args.b_step - 1) / args.b_step;
  args.n = shape.n;
  args.k_blocks = static_cast<int>(operands.row_bytes / kStageDepth);
  args.band = 8;
  args.out_stride = shape.n;
  args.out_scales_row = shape.rows;
  args.gather = gather;
  args.gathered = operands.a;
  if (gather.rows != nullptr) {
    args.a_scales_row = gather.scales_block;
    return LaunchPersistent<Kind, true>(args, a, b[0], b[1], stream);
  }
  args.a_scales_row = shape.rows;
  return LaunchPersistent<Kind, false>(args, a, b[0], b[1], stream);
}

}  // namespace switchyard::cuda
