// Grouped matrix products for decode: few rows a group, so that reading the weights is the work.
//
//   out[s][n] = sum over k of rows[index[s]][k] * weights[g][n][k]      for the slots s of group g
//
// in FP32, rounded once. FP8: E4M3 rows with an FP32 scale for each 128 values, E4M3 weights with
// one for each block of 128 x 128; each 128 k are summed by the tensor cores and promoted to FP32.
// BF16: no scales. INT8, with FP32 output only: rows have one FP32 scale each, by which their sums,
// exact until then, are multiplied. INT4 and E2M1 (narrow_weights.h), with FP32 output only: BF16
// rows or, kInt4Fp8, E4M3 rows as for FP8 with a pair for each 128 values: the scale, and the sum
// of the codes times kInt4Fp8SumUnit times the scale. A NaN or infinity stays in its own row.
//
// Slots: group g owns the slots [offset(g), offset(g) + count(g)), in memory order of `out`. Two
// layouts of the same call:
//   index   offsets and row_index given: rows stay where a dispatch landed them and are gathered
//   masked  offsets null: group g owns slots from g * slots_per_group; row_index null: slot s is
//   row s
// Counts, offsets and indices are read on the device: a captured graph serves any routing. A group
// without rows costs no weights; more than a tile's rows loop over row tiles. Indices are not
// checked.
//
// The functions check arguments, enqueue one kernel and return; they allocate nothing and may be
// captured. Thread-safe. Errors: cudaErrorInvalidValue for a shape that no kernel has (below), for
// a misaligned pointer or stride, or a plan that does not fit; else what the launch returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

constexpr int kGroupsMax = 1024;
constexpr int kRowTileMax = 64;

struct GemmRows {
  const std::byte* rows = nullptr;  // row r at rows + r * stride, 16-byte aligned
  std::int64_t stride = 0;          // bytes, a multiple of 16
  // FP8: bytes from a row's start to its k / 128 scales; INT8: to its scale. A multiple of 4;
  // kInt4Fp8: to its k / 128 pairs, a multiple of 8.
  std::int64_t scale_offset = 0;
  const std::int32_t* row_index = nullptr;
};

struct GemmGroups {
  const std::int32_t* counts = nullptr;   // [groups]
  const std::int32_t* offsets = nullptr;  // [groups], or null
  std::int32_t slots_per_group = 0;       // masked: counts above it are cut
  std::int32_t groups = 0;
};

// Plain: out is BF16 [slot][n], `stride` bytes from slot to slot, a multiple of 16.
// SwiGLU (weights packed as kGateUp): out is the hidden row silu(gate) * up of n / 2 values, E4M3
// with one FP32 scale for each 128 values at `scale_offset`, by the FP8 codec's formula (amax at
// least 1e-4), ready to be the rows of the next product.
// FP32: out is [slot][n] before rounding; weights packed as kRows128.
struct GemmOutput {
  std::byte* out = nullptr;
  std::int64_t stride = 0;
  std::int64_t scale_offset = 0;
  bool fp32 = false;
};

// Device memory through which CTAs hand on sums, so that the last units are cut into equal shares.
// It belongs to one stream at a time, is zero before its first use, and is left ready for the next.
struct GemmCarry {
  std::byte* memory = nullptr;  // 256-byte aligned; null: units stay whole
  std::int64_t bytes = 0;       // at least CarryBytesOf the plan
};

// How a product is cut. Every plan gives the same bytes.
struct GemmPlan {
  int row_tile = 32;  // 24, 32 or 64 rows; narrow weights: 24 or 32
  int window = 4;     // weight stages of an SM in flight; unbounded reads delay all other accesses
  int early = 4;      // stages fetched before the counts are known
  int ctas = 0;       // 0: one for each SM
  GemmCarry carry = {};  // not used for narrow weights
};

// Returns the bytes that a product with `ctas` CTAs needs.
std::int64_t CarryBytesOf(WeightOrder order, int row_tile, int ctas);

// A plan for `groups` groups that have rows, a busy one about `rows` of them. It takes `carry`
// where cutting units saves more than it costs.
GemmPlan PlanGroupedGemm(const PackedWeights& weights, int rows, int groups,
                         const GemmCarry& carry = {});

// `dependent`: launched with programmatic stream serialization, so that the first weights arrive
// while the kernel before it ends. Weights must then not be written by that kernel.
cudaError_t GroupedGemm(const GemmRows& rows, const GemmGroups& groups,
                        const PackedWeights& weights, const GemmOutput& out, const GemmPlan& plan,
                        bool dependent, cudaStream_t stream);

}  // namespace switchyard::cuda
