// Routers of the model families: from the logits of a batch to ids and weights of its experts.
//
// Rows are tokens: row t of every array follows row t - 1. Ids are logical experts, best first,
// distinct in a row; mapping them to replicas comes later. Equal scores go to the lower id, and
// NaN is chosen last (model/routing/top_k.h). A row depends only on itself. Nothing is allocated.
// Cost: top_k passes over a row of integers.
//
// Source: SGLang's topk.py and the DeepSeek-V3 report. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"

namespace switchyard {

inline constexpr std::int32_t kRoutedExpertsMax = 1024;

// One batch: T = logits.size() / experts rows.
struct RoutingBatch {
  std::span<const float> logits;  // FP32 [T, experts]
  std::span<std::int64_t> ids;    // [T, top_k]
  std::span<float> weights;       // FP32 [T, top_k]
  // Rows from this one on are padding: ids -1, weights 0, logits never read. nullopt: none is.
  std::optional<std::int64_t> num_token_non_padded = {};
};

// Softmax over all experts, the top_k largest.
struct SoftmaxRule {
  std::int32_t experts = 0;  // 1..kRoutedExpertsMax
  std::int32_t top_k = 0;    // 1..experts
  bool renormalize = true;   // weights of the chosen sum to 1
  friend bool operator==(const SoftmaxRule&, const SoftmaxRule&) = default;
};

// The step that multiplies by the routed scaling factor. Exactly one does.
enum class ScalingPlace : std::uint8_t {
  kWeights = 0,  // RouteSigmoid: its weights hold the factor
  kOutput = 1,   // AddSharedExpert: the factor is applied to the sum of the routed experts
};

// s = sigmoid(logits), c = s + bias. A group's score is the sum of its two largest c; the
// topk_groups best groups stay, equal ones by the lower number; the top_k largest c in them are
// chosen. Weights come from s, never from the bias.
struct SigmoidRule {
  std::int32_t experts = 0;      // 1..kRoutedExpertsMax
  std::int32_t top_k = 0;        // 1..topk_groups * experts / groups
  std::int32_t groups = 1;       // divides experts
  std::int32_t topk_groups = 1;  // 1..groups
  bool renormalize = true;       // divide the weights by their sum; all zero stay zero
  float scaling = 1;             // the routed scaling factor; finite, > 0
  ScalingPlace place = ScalingPlace::kWeights;
  friend bool operator==(const SigmoidRule&, const SigmoidRule&) = default;
};

// Errors, before anything is written: kInvalidArgument (BAD_TOP_K) for a top_k out of its range,
// (BAD_SHAPE) for other numbers of the rule and for sizes of the batch that do not fit together.
absl::Status RouteSoftmax(const SoftmaxRule& rule, const RoutingBatch& batch);

// `bias`: FP32 [experts], the correction bias of the checkpoint; empty: zeros. Errors: as above.
absl::Status RouteSigmoid(const SigmoidRule& rule, std::span<const float> bias,
                          const RoutingBatch& batch);

// The factor for AddSharedExpert: `scaling` when its place is the output, else 1.
float OutputScaling(const SigmoidRule& rule);

}  // namespace switchyard
