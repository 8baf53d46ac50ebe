#include "worker/device/cuda/backend/landed_products.h"

#include "core/base/status_macros.h"
#include "worker/device/cuda/backend/expert_products.h"
#include "worker/device/cuda/exchange/landed_pairs.h"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard {
namespace {

using cuda::Padded;
using cuda::Route;

bool IsFormatOf(Route route, cuda::ExchangeFormat format) {
  if (route == Route::kBf16) return format == cuda::ExchangeFormat::kBf16;
  return format == cuda::ExchangeFormat::kFp8 || format == cuda::ExchangeFormat::kFp8Pow2;
}

}  // namespace

std::int64_t LandedProducts::RowBytes() const {
  return Padded(space_.shape_.intermediate) * (is_fp8() ? 1 : 2);
}

cuda::PackedWeights LandedProducts::Weights(Matrix matrix) const {
  return WeightsOf(table_, space_.shape_, *table_.landed_route(), matrix);
}

bool LandedProducts::Serves(const cuda::ExchangeRank& rank, const cuda::ExchangeStep& step,
                            std::int64_t rows_of_expert) const {
  const cuda::ExchangeShape& shape = rank.shape;
  if (!IsNormal(shape) || !table_.landed_route().has_value() ||
      !IsFormatOf(*table_.landed_route(), step.format) || rows_of_expert < kPairsForPrefill ||
      // Ids that name an expert twice could have more pairs than there are slots.
      shape.experts_of_rank < shape.top_k ||
      rank.layout.row_stride * shape.ranks * std::int64_t{shape.tokens_max} > std::int64_t{1}
                                                                                  << 36) {
    return false;
  }
  const std::int64_t pairs = cuda::LandedPairsMax(shape, step.cover);
  const auto room = static_cast<std::int64_t>(space_.pairs_max_) * std::int64_t{sizeof(float)};
  const std::int64_t middle = Padded(space_.shape_.intermediate);
  return pairs * RowBytes() <= room * 2 * middle &&
         middle / 128 * cuda::ScaleStrideOf(pairs) * std::int64_t{sizeof(float)} <=
             room * Padded(space_.shape_.hidden) &&
         HasPrefillProduct(Weights(Matrix::kGateUp)) && HasPrefillProduct(Weights(Matrix::kDown));
}

absl::Status LandedProducts::Run(const cuda::ExchangeRank& rank, const cuda::ExchangeStep& step,
                                 std::uint16_t* answers) {
  const cuda::ExchangeShape& shape = rank.shape;
  const std::int64_t pairs = cuda::LandedPairsMax(shape, step.cover);
  const cuda::GemmGroups groups{
      .counts = step.rows.counts, .offsets = step.rows.offsets, .groups = shape.experts_of_rank};
  const cuda::PrefillScratch scratch{.units_taken = space_.units_taken_};
  const std::byte* const landed = rank.heaps[rank.rank] + rank.layout.rows;
  const std::byte* const scales = landed + DataBytesOf(step.format, shape.hidden);
  const cuda::PrefillRows rows{.rows = landed,
                               .stride = rank.layout.row_stride,
                               .count = std::int64_t{shape.ranks} * shape.tokens_max,
                               .index = step.rows.row_index,
                               .scales = reinterpret_cast<const float*>(scales),
                               .scale_stride = rank.layout.row_stride / 4};
  const cuda::PrefillHidden hidden{.rows = reinterpret_cast<std::byte*>(space_.gate_up_),
                                   .stride = RowBytes(),
                                   .scales = space_.down_,
                                   .scale_stride = cuda::ScaleStrideOf(pairs)};
  SY_RETURN_IF_ERROR(fault_->Check(
      LaunchPrefillHidden(rows, groups, Weights(Matrix::kGateUp), hidden, scratch, stream_),
      "multiplying experts by landed rows"));
  return fault_->Check(
      LaunchPrefillAnswers({.rows = hidden.rows,
                            .stride = hidden.stride,
                            .count = pairs,
                            .scales = hidden.scales,
                            .scale_stride = hidden.scale_stride},
                           groups, Weights(Matrix::kDown), {.out = answers, .stride = shape.hidden},
                           scratch, stream_),
      "multiplying experts for answers");
}

}  // namespace switchyard
