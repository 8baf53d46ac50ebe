// Chooses the next token from its logits: greedy, or sampled from the top-p nucleus with a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/rng.h"

namespace switchyard::qwen3_moe {

// The id of the largest logit; the lowest id if several are equal. NaN is never preferred.
std::int32_t Argmax(std::span<const float> logits);

// How to choose a token.
struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  double top_p = 1;        // sample from the most probable tokens with this total probability
  std::uint64_t seed = 0;
};

// A sampler for one text: its random numbers depend on how many tokens it has chosen.
// Equal options and logits give equal tokens, on different machines up to the rounding of exp. Not
// thread-safe.
class Sampler {
 public:
  // Errors: kInvalidArgument (BAD_REQUEST) unless temperature is finite and >= 0 and 0 < top_p
  // <= 1.
  static absl::StatusOr<Sampler> Create(const SamplingOptions& options);

  // The next token. Each call with a temperature above 0 uses one random number.
  std::int32_t Next(std::span<const float> logits);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed) {}

  SamplingOptions options_;
  SeededRng rng_;
  // Kept between calls to avoid allocations.
  std::vector<double> probabilities_;
  std::vector<std::size_t> order_;  // token ids by descending probability
};

}  // namespace switchyard::qwen3_moe
