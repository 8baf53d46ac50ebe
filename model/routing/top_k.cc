#include "model/routing/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace switchyard {
namespace {

constexpr std::uint32_t kSignBit = 0x8000'0000U;
constexpr std::uint32_t kNanKey = 1;  // below the key of -infinity

// The largest value that is not NaN; -infinity when there is none.
float Largest(std::span<const float> values) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float value : values) largest = value > largest ? value : largest;
  return largest;
}

}  // namespace

std::uint32_t OrderKey(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 becomes +0
  // Flipping negative numbers and setting the sign of others orders IEEE codes as unsigned
  // integers.
  const std::uint32_t key = (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
  return std::isnan(score) ? kNanKey : key;
}

template <typename Id>
void TakeTopK(std::span<std::uint32_t> keys, std::span<Id> ids) {
  for (Id& id : ids) {
    // Two simple loops, maximum and place, vectorize better than one that tracks both.
    std::uint32_t best = kTakenKey;
    for (const std::uint32_t key : keys) best = std::max(best, key);
    const auto at = std::find(keys.begin(), keys.end(), best);
    id = static_cast<Id>(at - keys.begin());
    *at = kTakenKey;
  }
}

template <typename Id>
void TopK(std::span<const float> scores, std::span<std::uint32_t> keys, std::span<Id> ids) {
  const std::span<std::uint32_t> row = keys.first(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) row[i] = OrderKey(scores[i]);
  TakeTopK(row, ids);
}

template <typename Id>
void SoftmaxWeights(std::span<const float> logits, std::span<const Id> ids, bool renormalize,
                    std::span<float> weights) {
  const float largest = Largest(logits);
  float sum = 0;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    weights[k] = std::exp(logits[static_cast<std::size_t>(ids[k])] - largest);
    sum += weights[k];
  }
  if (!renormalize) {
    sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
  }
  for (float& weight : weights.first(ids.size())) weight /= sum;
}

template void TakeTopK(std::span<std::uint32_t>, std::span<std::int32_t>);
template void TakeTopK(std::span<std::uint32_t>, std::span<std::int64_t>);
template void TopK(std::span<const float>, std::span<std::uint32_t>, std::span<std::int32_t>);
template void TopK(std::span<const float>, std::span<std::uint32_t>, std::span<std::int64_t>);
template void SoftmaxWeights(std::span<const float>, std::span<const std::int32_t>, bool,
                             std::span<float>);
template void SoftmaxWeights(std::span<const float>, std::span<const std::int64_t>, bool,
                             std::span<float>);

}  // namespace switchyard
