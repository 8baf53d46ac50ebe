// The experts of a layer at decode in one kernel: w13, SwiGLU, quantization, w2.
//
//   hidden[s] = silu(gate) * up of row index[s]      out[s] = w2 hidden[s], BF16, not weighted
//
// FP8 rows and weights as in grouped_gemm.h; hidden is E4M3 with an FP32 scale for each 64 values
// (amax at least 1e-4, as in the codec). The products of one expert wait for each other, not those
// of the grid, so the memory stays busy from the first stage to the last: worth it for small
// experts, where the borders between three kernels cost as much as a third of the work.
//
// The kernel's CTAs wait for each other: all of them have to be resident, one an SM, and no kernel
// that runs beside it may wait for it. A wait of more than two seconds ends the kernel with a trap,
// which is a sticky error of the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

// Shapes: hidden a multiple of 256 up to 4096, intermediate a multiple of 128 up to 1024.
struct FfnShape {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};
bool HasFusedFfn(const FfnShape& shape);

// Hidden rows and counters of one call at a time, 128-byte aligned. Zero it once before its first
// use; each call leaves it ready for the next, which has the same plan.ctas and number of groups.
std::int64_t FusedFfnWorkspaceBytes(const FfnShape& shape, std::int32_t groups, std::int64_t slots);

// w13: n = 2 * intermediate, k = hidden, kGateUpInterleaved. w2: n = hidden, k = intermediate,
// kRows128. `out.out`: BF16 [slot][hidden].
struct FusedFfnArguments {
  GemmRows rows{};
  GemmGroups groups{};
  std::int64_t slots = 0;  // slots end below it; sizes the workspace
  PackedWeights w13{};
  PackedWeights w2{};
  GemmOutput out{};
  std::byte* workspace = nullptr;
};

// `plan.row_tile`: 16, 32 or 48. Errors and `dependent` as GroupedGemm.
cudaError_t FusedFfn(const FusedFfnArguments& args, const GemmPlan& plan, bool dependent,
                     cudaStream_t stream);

// A plan for about `rows` rows in a busy expert.
GemmPlan PlanFusedFfn(int rows);

}  // namespace switchyard::cuda
