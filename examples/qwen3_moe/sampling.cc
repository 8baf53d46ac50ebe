#include "examples/qwen3_moe/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard::qwen3_moe {

std::int32_t Argmax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    // A NaN at the start must not win against numbers only because it is first.
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return static_cast<std::int32_t>(best);
}

absl::StatusOr<Sampler> Sampler::Create(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("temperature is ", options.temperature,
                                  "; it must be 0 (greedy) or a positive number"));
  }
  // A negated condition, because a NaN must be refused too.
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrCat("top_p is ", options.top_p, "; it must be above 0 and at most 1"));
  }
  return Sampler(options);
}

std::int32_t Sampler::Next(std::span<const float> logits) {
  const std::int32_t greedy = Argmax(logits);
  if (options_.temperature == 0) return greedy;
  // Subtracted from every logit, so that exp cannot overflow.
  const auto largest = static_cast<double>(logits[static_cast<std::size_t>(greedy)]);
  probabilities_.resize(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    probabilities_[i] = std::exp((static_cast<double>(logits[i]) - largest) / options_.temperature);
    // A NaN must not poison the sum: such a token is never chosen.
    if (std::isnan(probabilities_[i])) probabilities_[i] = 0;
    total += probabilities_[i];
  }
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  // Stable, so that tokens of equal probability are ordered by id on every machine.
  std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
    return probabilities_[a] > probabilities_[b];
  });
  std::size_t kept = 0;
  double nucleus = 0;
  // The nucleus has at least one token, even if top_p is tiny.
  while (kept < order_.size() && (kept == 0 || nucleus < options_.top_p * total)) {
    nucleus += probabilities_[order_[kept++]];
  }
  // The last token is the default: rounding can leave the sum just below the point.
  const double point = rng_.Uniform() * nucleus;
  double passed = 0;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    passed += probabilities_[order_[i]];
    if (point < passed) return static_cast<std::int32_t>(order_[i]);
  }
  return static_cast<std::int32_t>(order_[kept - 1]);
}

}  // namespace switchyard::qwen3_moe
