// Facts of an expert, a row and a (row, expert) pair that the steps of a run need: plain data that
// the host fills and kernels read.
//
// A run over experts is five steps, each a kernel or one for each route:
//
//   pair_rows      decodes and rounds the row of each pair, pairs grouped by expert
//   product        gate and up, stacked: FP32 sums of each pair
//   swiglu_rows    h = silu(gate) * up, rounded as the expert asks
//   product        down: FP32 sums
//   answer_rows    rounds, or weighs and adds in the order of k, and looks for NaN
//
// All sizes are padded to multiples of kPad with zeros, so that the products serve any shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/codec.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

constexpr std::int64_t kPad = 128;
constexpr std::int64_t Padded(std::int64_t size) { return (size + kPad - 1) / kPad * kPad; }

// The product that an expert's weights are stored for. Weights keep the narrowest code that holds
// each of them exactly.
enum class Route : std::uint8_t {
  kBf16,        // BF16 weights without scales along k: grouped_gemm.h
  kFp8,         // E4M3 weights and rows, scales of 128 x 128 blocks: grouped_gemm.h
  kInt8,        // INT8 weights and rows, a scale for each row: grouped_gemm.h
  kInt4,        // INT4 weights, any scales, BF16 rows: grouped_gemm.h
  kInt4Fp8,     // INT4 weights without zero points, any scales, E4M3 rows: grouped_gemm.h
  kE2m1,        // NVFP4 weights, BF16 rows: grouped_gemm.h
  kScaledBf16,  // BF16 rows, any scales: scaled_product.h
  kScaledE4m3,
  kScaledInt8,
};
constexpr int kRoutes = 9;

// Those of grouped_gemm.h, with the type of their weights.
struct GroupedRoute {
  Route route;
  WeightType type;
};
inline constexpr GroupedRoute kGroupedRoutes[] = {
    {Route::kBf16, WeightType::kBf16},       {Route::kFp8, WeightType::kFp8},
    {Route::kInt8, WeightType::kInt8},       {Route::kInt4, WeightType::kInt4},
    {Route::kInt4Fp8, WeightType::kInt4Fp8}, {Route::kE2m1, WeightType::kE2m1}};
// Null for another route.
constexpr const GroupedRoute* FindGrouped(Route route) {
  for (const GroupedRoute& row : kGroupedRoutes) {
    if (row.route == route) return &row;
  }
  return nullptr;
}

// As ActivationFormat of core/activation_format.h, by value.
enum class Rounding : std::uint8_t {
  kBf16,
  kFp8Group,
  kFp8GroupPow2,
  kInt8Row,
  kNvfp4,
  kFp8Row,
  kFp8Static,
  kInt4Row,
};

struct RoundingRule {
  Rounding format = Rounding::kBf16;
  float scale = 1.0F;  // kFp8Static, kNvfp4
};

// One matrix of an expert, [n, k] padded, and what finishes its sums: sum * output_scales + biases.
struct MatrixFacts {
  const std::byte* weights = nullptr;    // packed as kRows128, or row-major for the scaled routes
  const float* scales = nullptr;         // along k, or null
  const float* output_scales = nullptr;  // [n], or null: 1
  const float* biases = nullptr;         // [n], or null: 0
  std::int32_t rows_of_scale = 0;        // 1 or 128 outputs share a scale; 0: no scales
};

struct ExpertFacts {
  MatrixFacts gate_up;  // gate's rows, then up's, each padded
  MatrixFacts down;
  RoundingRule inputs;
  RoundingRule middle;
  Route route = Route::kBf16;
};

// A row of a pass: where it comes from and where its answer goes. Bytes may lie at any address.
struct PassRow {
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  std::byte* out = nullptr;  // null: the row is none, and has no pairs
  float global_scale = 1.0F;
  RowFormat format = RowFormat::kBf16;
  bool rounded = false;  // on the wire; the expert does not round it again
};

// One of a row's pairs, in the order of the sum.
struct PairTerm {
  std::int32_t place = -1;  // of the pair among those of the pass, grouped by expert; -1: none
  std::int32_t slot = 0;    // of the table: the expert
  float weight = 1.0F;
};

// Rows of pairs in the form that the products read, at their places. A row of route kFp8 holds
// codes, and a scale for each 128 of them: `scale_offset` bytes behind its start or, for the
// products of prefill, in `block_scales`, all rows of a block of 128 together. One of kInt4Fp8
// holds a sum beside each scale (grouped_gemm.h), at `scale_offset`. A row of route kInt8 holds
// codes, and one scale at `scale_offset`. Every other row is BF16.
struct PairRows {
  std::byte* rows = nullptr;
  std::int64_t stride = 0;
  std::int64_t scale_offset = 0;
  float* block_scales = nullptr;  // block g of place p: at g * block_stride + p; null: with the row
  std::int64_t block_stride = 0;
};

// A pass, in device memory. amax: [slots][2], the largest finite magnitudes of inputs and h,
// raised; null: not recorded.
struct PairList {
  const PassRow* rows = nullptr;
  const PairTerm* terms = nullptr;       // [count][width]
  const ExpertFacts* experts = nullptr;  // by slot
  float* amax = nullptr;
  std::int32_t count = 0;  // rows
  std::int32_t width = 1;
};

}  // namespace switchyard::cuda
