// The next token from its logits: greedy, or drawn from the top-p nucleus with a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/rng.h"

namespace switchyard::qwen3_moe {

// The id of the largest logit, the lowest of equal ones; NaN is never preferred.
std::int32_t Argmax(std::span<const float> logits);

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  double top_p = 1;        // the smallest set of most probable tokens that together reach it
  std::uint64_t seed = 0;
};

// Equal options and logits give equal tokens, on every machine up to the rounding of exp. Not
// thread-safe.
class Sampler {
 public:
  // INVALID_ARGUMENT (BAD_REQUEST) unless temperature is finite and >= 0 and 0 < top_p <= 1.
  static absl::StatusOr<Sampler> Create(const SamplingOptions& options);

  std::int32_t Next(std::span<const float> logits);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed) {}

  SamplingOptions options_;
  SeededRng rng_;
  std::vector<double> probabilities_;
  std::vector<std::size_t> order_;
};

}  // namespace switchyard::qwen3_moe
