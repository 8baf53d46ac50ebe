// A model of random weights, generated from a seed on every machine that needs them: for benchmarks
// and tests of shapes whose checkpoints are too large to ship.
//
// Weights of one (seed, layer, expert, projection) are the same bytes on every machine. Values are
// uniform in (-a, a) with a = sqrt(3 / fan-in), so their standard deviation is 1 / sqrt(fan-in) and
// rows keep their scale through an expert. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/moe_shape.h"
#include "model/expert_weights.h"
#include "model/model_config.h"

namespace switchyard {

// Two models that compare equal have the same weights.
struct SyntheticModel {
  std::uint64_t seed = 1;
  MoeShape shape;
  std::int32_t layers = 1;  // all of them MoE layers

  friend bool operator==(const SyntheticModel&, const SyntheticModel&) = default;
};

// Every synthetic model's text begins with it.
inline constexpr char kSyntheticPrefix[] = "synthetic:";

// "synthetic:seed=7,hidden=2048,intermediate=768,experts=64,top_k=8,layers=2", in any order; seed
// and layers may be left out (1). Errors: kInvalidArgument (BAD_CONFIG), metadata {key}.
absl::StatusOr<SyntheticModel> ParseSyntheticModel(absl::string_view text);
// The text of `model`, with every key.
std::string ToString(const SyntheticModel& model);

// model_type "synthetic"; it has no decoder.
ModelConfig ConfigOf(const SyntheticModel& model);

// Errors: kInvalidArgument (UNKNOWN_LAYER, EXPERT_OUT_OF_RANGE). About 0.5 GB/s in a release build.
absl::StatusOr<ExpertWeights> GenerateExpert(const SyntheticModel& model, LayerId layer,
                                             ExpertId expert);

// The hashes of GenerateExpert's results, with one expert in memory at a time. Errors: kCancelled.
absl::StatusOr<WeightManifest> BuildManifest(const SyntheticModel& model,
                                             const ManifestProgress& progress = nullptr);

}  // namespace switchyard
