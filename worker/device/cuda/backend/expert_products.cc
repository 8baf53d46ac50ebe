#include "worker/device/cuda/backend/expert_products.h"

#include <algorithm>

#include "core/base/status_macros.h"
#include "worker/device/cuda/gemm/prefill_packed.h"
#include "worker/device/cuda/steps/pair_rows.h"
#include "worker/device/cuda/steps/scaled_product.h"

namespace switchyard {
namespace {

using cuda::Padded;
using cuda::Route;

}  // namespace

void ExpertProducts::Expect(Route route, std::int32_t pairs, std::int32_t busiest) {
  if (pairs == 0) return;
  RouteUse& use = UseOf(route);
  use.pairs += pairs;
  ++use.experts;
  use.busiest = std::max(use.busiest, busiest);
}

void ExpertProducts::Choose(bool amax) {
  for (const auto& [route, type] : cuda::kGroupedRoutes) {
    RouteUse& use = UseOf(route);
    use.prefill = use.pairs >= kPairsForPrefill * std::max(use.experts, 1) &&
                  HasPrefillProduct(Weights(route, Matrix::kGateUp)) &&
                  HasPrefillProduct(Weights(route, Matrix::kDown));
    use.makes_hidden = use.prefill && !amax && table_.MakesHidden(route);
  }
}

cuda::PackedWeights WeightsOf(const CudaTable& table, const MoeShape& shape, Route route,
                              Matrix matrix) {
  const std::int64_t hidden = Padded(shape.hidden);
  const std::int64_t middle = Padded(shape.intermediate);
  cuda::PackedWeights weights = table.Weights(route, matrix);
  weights.n = matrix == Matrix::kDown ? hidden : 2 * middle;
  weights.k = matrix == Matrix::kDown ? middle : hidden;
  return weights;
}

cuda::PairRows ExpertProducts::RowsOf(Matrix matrix) const {
  const bool down = matrix == Matrix::kDown;
  cuda::PairRows rows = down ? space_.middle_ : space_.inputs_;
  if (uses_[static_cast<std::size_t>(Route::kFp8)].prefill) {
    rows.block_scales = down ? space_.middle_scales_ : space_.input_scales_;
    rows.block_stride = space_.scale_stride_;
  }
  return rows;
}

absl::Status ExpertProducts::Multiply(const GroupedPairs& pairs) {
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  SY_RETURN_IF_ERROR(fault_->Check(
      LoadPairRows(pairs.list, space_.shape_.hidden, RowsOf(Matrix::kGateUp), stream_),
      "loading rows"));
  SY_RETURN_IF_ERROR(Multiply(Matrix::kGateUp, pairs));
  cuda::PairSums sums{.sums = space_.gate_up_, .stride = 2 * middle};
  for (std::size_t r = 0; r < uses_.size(); ++r) {
    if (uses_[r].pairs > 0 && !uses_[r].makes_hidden) sums.routes |= 1U << r;
  }
  if (sums.routes != 0) {
    SY_RETURN_IF_ERROR(fault_->Check(SwigluPairRows(pairs.list, sums, space_.shape_.intermediate,
                                                    RowsOf(Matrix::kDown), stream_),
                                     "multiplying gate and up"));
  }
  return Multiply(Matrix::kDown, pairs);
}

absl::Status ExpertProducts::Answer(const cuda::PairList& list, bool weighted, bool fp32,
                                    std::uint8_t* nan) {
  const cuda::Answers answers{.sums = space_.down_,
                              .sum_stride = Padded(space_.shape_.hidden),
                              .hidden = space_.shape_.hidden,
                              .weighted = weighted,
                              .fp32 = fp32,
                              .nan = nan};
  return fault_->Check(WriteAnswers(answers, list, stream_), "writing answers");
}

absl::Status ExpertProducts::Multiply(Matrix matrix, const GroupedPairs& pairs) {
  const bool down = matrix == Matrix::kDown;
  const std::int64_t hidden = Padded(space_.shape_.hidden);
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  for (const auto& [route, type] : cuda::kGroupedRoutes) {
    if (uses_[static_cast<std::size_t>(route)].pairs == 0) continue;
    SY_RETURN_IF_ERROR(MultiplyGrouped(matrix, route, pairs));
  }
  for (const Route route : {Route::kScaledBf16, Route::kScaledE4m3, Route::kScaledInt8}) {
    const auto index = static_cast<std::size_t>(route);
    if (uses_[index].pairs == 0) continue;
    const cuda::PairRows& rows = down ? space_.middle_ : space_.inputs_;
    const cuda::ScaledProduct product{
        .route = route,
        .experts = table_.facts(),
        .down = down,
        .counts = pairs.counts + index * static_cast<std::size_t>(table_.slots()),
        .offsets = pairs.offsets,
        .slots = table_.slots(),
        .rows = rows.rows,
        .row_stride = rows.stride,
        .out = down ? space_.down_ : space_.gate_up_,
        .out_stride = down ? hidden : 2 * middle,
        .n = down ? hidden : 2 * middle,
        .k = down ? middle : hidden};
    SY_RETURN_IF_ERROR(fault_->Check(MultiplyScaled(product, stream_), "multiplying experts"));
  }
  return absl::OkStatus();
}

absl::Status ExpertProducts::MultiplyGrouped(Matrix matrix, Route route,
                                             const GroupedPairs& pairs) {
  const bool down = matrix == Matrix::kDown;
  const auto index = static_cast<std::size_t>(route);
  const cuda::PackedWeights weights = Weights(route, matrix);
  const cuda::GemmGroups groups{
      .counts = pairs.counts + index * static_cast<std::size_t>(table_.slots()),
      .offsets = pairs.offsets,
      .groups = table_.slots()};
  if (uses_[index].prefill) return MultiplyPrefill(matrix, route, groups, weights);
  const cuda::PairRows& rows = down ? space_.middle_ : space_.inputs_;
  const cuda::GemmRows gathered{
      .rows = rows.rows, .stride = rows.stride, .scale_offset = rows.scale_offset};
  float* const sums = down ? space_.down_ : space_.gate_up_;
  const cuda::GemmOutput out{.out = reinterpret_cast<std::byte*>(sums),
                             .stride = weights.n * std::int64_t{sizeof(float)},
                             .fp32 = true};
  const cuda::GemmPlan plan =
      cuda::PlanGroupedGemm(weights, uses_[index].busiest, uses_[index].experts, space_.carry_);
  return fault_->Check(cuda::GroupedGemm(gathered, groups, weights, out, plan, true, stream_),
                       "multiplying experts");
}

absl::Status ExpertProducts::MultiplyPrefill(Matrix matrix, Route route,
                                             const cuda::GemmGroups& groups,
                                             const cuda::PackedWeights& weights) {
  const bool down = matrix == Matrix::kDown;
  const cuda::PairRows from = RowsOf(matrix);
  cuda::PrefillRows rows{.rows = from.rows,
                         .stride = from.stride,
                         .count = static_cast<std::int64_t>(space_.pairs_max_),
                         .scales = from.block_scales,
                         .scale_stride = from.block_stride};
  if (route == Route::kInt8) {
    rows.scales = reinterpret_cast<const float*>(from.rows + from.scale_offset);
    rows.scale_stride = from.stride / std::int64_t{sizeof(float)};
  }
  const cuda::PrefillScratch scratch{.units_taken = space_.units_taken_};
  if (!down && uses_[static_cast<std::size_t>(route)].makes_hidden) {
    const cuda::PairRows to = RowsOf(Matrix::kDown);
    const cuda::PrefillHidden out{.rows = to.rows,
                                  .stride = to.stride,
                                  .scales = to.block_scales,
                                  .scale_stride = to.block_stride};
    return fault_->Check(cuda::LaunchPrefillHidden(rows, groups, weights, out, scratch, stream_),
                         "multiplying experts");
  }
  const cuda::PrefillSums out{.out = down ? space_.down_ : space_.gate_up_, .stride = weights.n};
  return fault_->Check(cuda::LaunchPrefillSums(rows, groups, weights, out, scratch, stream_),
                       "multiplying experts");
}

}  // namespace switchyard
