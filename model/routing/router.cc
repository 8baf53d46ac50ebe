#include "model/routing/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/routing/top_k.h"

namespace switchyard {
namespace {

constexpr std::size_t kRowMax = kRoutedExpertsMax;

absl::Status BadShape(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                   absl::StrCat("router: ", what));
}

absl::Status CheckSizes(std::int32_t experts, std::int32_t top_k, std::int32_t top_k_max) {
  if (experts < 1 || experts > kRoutedExpertsMax) {
    return BadShape(absl::StrFormat("%d experts; give 1 to %d", experts, kRoutedExpertsMax));
  }
  // `top_k_max` is below the number of experts when whole groups are masked.
  if (top_k >= 1 && top_k <= top_k_max) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadTopK,
                   absl::StrFormat("router: top-k %d; of %d experts 1 to %d can be chosen", top_k,
                                   experts, top_k_max),
                   {{"want", absl::StrCat(top_k)}, {"have", absl::StrCat(top_k_max)}});
}

absl::Status CheckBatch(const RoutingBatch& batch, std::int32_t experts, std::int32_t top_k) {
  const auto row = static_cast<std::size_t>(experts);
  const std::size_t rows = batch.logits.size() / row;
  const std::size_t chosen = rows * static_cast<std::size_t>(top_k);
  if (batch.logits.size() % row != 0) {
    return BadShape(absl::StrFormat("%d logits are not a multiple of %d experts",
                                    batch.logits.size(), experts));
  }
  if (batch.ids.size() != chosen || batch.weights.size() != chosen) {
    return BadShape(absl::StrFormat("%d rows of top-k %d need %d ids and weights, not %d and %d",
                                    rows, top_k, chosen, batch.ids.size(), batch.weights.size()));
  }
  // Absent means that all rows count, so any valid number passes here.
  const std::int64_t valid = batch.num_token_non_padded.value_or(0);
  if (valid < 0 || valid > static_cast<std::int64_t>(rows)) {
    return BadShape(
        absl::StrFormat("%d tokens without padding in a batch of %d rows", valid, rows));
  }
  return absl::OkStatus();
}

absl::Status CheckSigmoid(const SigmoidRule& rule, std::span<const float> bias) {
  if (rule.groups < 1 || rule.experts % rule.groups != 0) {
    return BadShape(
        absl::StrFormat("%d experts do not divide into %d groups", rule.experts, rule.groups));
  }
  if (rule.topk_groups < 1 || rule.topk_groups > rule.groups) {
    return BadShape(absl::StrFormat("%d of %d groups; give 1 to %d", rule.topk_groups, rule.groups,
                                    rule.groups));
  }
  if (!std::isfinite(rule.scaling) || rule.scaling <= 0) {
    return BadShape(absl::StrFormat("scaling factor %g; give a finite one above 0", rule.scaling));
  }
  if (!bias.empty() && bias.size() != static_cast<std::size_t>(rule.experts)) {
    return BadShape(
        absl::StrFormat("a bias of %d values for %d experts", bias.size(), rule.experts));
  }
  return CheckSizes(rule.experts, rule.top_k, rule.experts / rule.groups * rule.topk_groups);
}

// The number of rows before the padding. The batch was checked.
std::size_t TokensOf(const RoutingBatch& batch, std::size_t top_k) {
  const std::size_t rows = batch.ids.size() / top_k;
  return static_cast<std::size_t>(
      batch.num_token_non_padded.value_or(static_cast<std::int64_t>(rows)));
}

// Padding rows get ids that no expert has, so that nothing downstream needs the count again.
void Pad(const RoutingBatch& batch, std::size_t top_k) {
  const std::size_t begin = TokensOf(batch, top_k) * top_k;
  std::ranges::fill(batch.ids.subspan(begin), -1);
  std::ranges::fill(batch.weights.subspan(begin), 0.0F);
}

// The sum of the two largest scores, or the only score of a group of one. NaN counts as -infinity:
// its comparisons are false.
float GroupScore(std::span<const float> scores) {
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (const float score : scores) {
    if (score > first) {
      second = first;
      first = score;
    } else if (score > second) {
      second = score;
    }
  }
  return scores.size() == 1 ? first : first + second;
}

struct SigmoidRow {
  std::span<const float> logits;
  std::span<std::int64_t> ids;
  std::span<float> weights;
};

// Intermediate values of one row. On the stack: routers run for every step and must not allocate.
struct Scratch {
  std::array<float, kRowMax> scores{};
  std::array<float, kRowMax> choice{};
  std::array<std::uint32_t, kRowMax> keys{};
  std::array<std::uint32_t, kRowMax> group_keys{};
  std::array<std::int32_t, kRowMax> groups{};
};

// Removes the experts of all but the best groups from `keys`.
void MaskGroups(const SigmoidRule& rule, std::size_t experts, Scratch& scratch) {
  const auto groups = static_cast<std::size_t>(rule.groups);
  const auto kept = static_cast<std::size_t>(rule.topk_groups);
  const std::size_t size = experts / groups;
  const std::span<const float> choice = scratch.choice;
  const std::span<std::uint32_t> group_keys = std::span(scratch.group_keys).first(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    group_keys[g] = OrderKey(GroupScore(choice.subspan(g * size, size)));
  }
  // Marks the keys of the best groups as taken, which the loop below reads.
  TakeTopK(group_keys, std::span(scratch.groups).first(kept));
  for (std::size_t g = 0; g < groups; ++g) {
    if (group_keys[g] == kTakenKey) continue;  // one of the best
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) scratch.keys[e] = kTakenKey;
  }
}

// The bias only balances the choice of experts (DeepSeek-V3 report); weights come from the scores.
void WeighSigmoid(const SigmoidRule& rule, std::span<const float> scores, const SigmoidRow& row) {
  float sum = 0;
  for (std::size_t k = 0; k < row.ids.size(); ++k) {
    row.weights[k] = scores[static_cast<std::size_t>(row.ids[k])];
    sum += row.weights[k];
  }
  const float factor = rule.place == ScalingPlace::kWeights ? rule.scaling : 1.0F;
  // All scores may underflow to zero; the weights then stay zero instead of becoming NaN.
  const float divisor = rule.renormalize && sum != 0 ? sum : 1.0F;
  for (float& weight : row.weights) weight = weight / divisor * factor;
}

void RouteSigmoidRow(const SigmoidRule& rule, std::span<const float> bias, const SigmoidRow& row,
                     Scratch& scratch) {
  const std::size_t experts = row.logits.size();
  for (std::size_t e = 0; e < experts; ++e) {
    scratch.scores[e] = 1.0F / (1.0F + std::exp(-row.logits[e]));
  }
  for (std::size_t e = 0; e < experts; ++e) {
    scratch.choice[e] = scratch.scores[e] + (bias.empty() ? 0.0F : bias[e]);
  }
  for (std::size_t e = 0; e < experts; ++e) scratch.keys[e] = OrderKey(scratch.choice[e]);
  // With all groups kept there is nothing to mask.
  if (rule.topk_groups < rule.groups) MaskGroups(rule, experts, scratch);
  TakeTopK(std::span(scratch.keys).first(experts), row.ids);
  WeighSigmoid(rule, scratch.scores, row);
}

}  // namespace

absl::Status RouteSoftmax(const SoftmaxRule& rule, const RoutingBatch& batch) {
  SY_RETURN_IF_ERROR(CheckSizes(rule.experts, rule.top_k, rule.experts));
  SY_RETURN_IF_ERROR(CheckBatch(batch, rule.experts, rule.top_k));
  const auto experts = static_cast<std::size_t>(rule.experts);
  const auto top_k = static_cast<std::size_t>(rule.top_k);
  std::array<std::uint32_t, kRowMax> keys{};
  for (std::size_t t = 0; t < TokensOf(batch, top_k); ++t) {
    const std::span<const float> logits = batch.logits.subspan(t * experts, experts);
    const std::span<std::int64_t> ids = batch.ids.subspan(t * top_k, top_k);
    TopK(logits, keys, ids);
    SoftmaxWeights(logits, std::span<const std::int64_t>(ids), rule.renormalize,
                   batch.weights.subspan(t * top_k, top_k));
  }
  Pad(batch, top_k);
  return absl::OkStatus();
}

absl::Status RouteSigmoid(const SigmoidRule& rule, std::span<const float> bias,
                          const RoutingBatch& batch) {
  SY_RETURN_IF_ERROR(CheckSigmoid(rule, bias));
  SY_RETURN_IF_ERROR(CheckBatch(batch, rule.experts, rule.top_k));
  const auto experts = static_cast<std::size_t>(rule.experts);
  const auto top_k = static_cast<std::size_t>(rule.top_k);
  Scratch scratch;
  for (std::size_t t = 0; t < TokensOf(batch, top_k); ++t) {
    RouteSigmoidRow(rule, bias,
                    {.logits = batch.logits.subspan(t * experts, experts),
                     .ids = batch.ids.subspan(t * top_k, top_k),
                     .weights = batch.weights.subspan(t * top_k, top_k)},
                    scratch);
  }
  Pad(batch, top_k);
  return absl::OkStatus();
}

float OutputScaling(const SigmoidRule& rule) {
  return rule.place == ScalingPlace::kOutput ? rule.scaling : 1.0F;
}

}  // namespace switchyard
