// Generates text from a prompt. The prompt uses one path to the experts (prefill), each generated
// token another (decode), as in an engine that serves the two phases separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"
#include "examples/qwen3_moe/sampling.h"

namespace switchyard::qwen3_moe {

// Everything that Generate uses. All must outlive the call.
struct GenerateParts {
  const Decoder& decoder;
  const MoePath& prefill;
  const MoePath& decode;
  // Measures the phases; a test passes a manual clock.
  const Clock& clock;
};

// The prompt, the length and the callbacks of one text.
struct GenerateOptions {
  std::span<const std::int32_t> prompt;  // at least one token
  std::size_t tokens = 0;                // the most tokens to generate; may be 0
  SamplingOptions sampling;
  std::span<const std::int32_t> stop;  // end tokens, not part of the text
  // Called with each token as soon as it is sampled.
  std::function<void(std::int32_t token)> on_token;
};

// The generated tokens and the times of both phases. `decode` includes sampling and
// on_token.
struct GenerateReport {
  std::vector<std::int32_t> tokens;  // without the prompt
  // Counted here, because the prompt itself is the caller's.
  std::size_t prompt_tokens = 0;
  Duration prefill{};            // from the prompt to the logits of the first token
  std::size_t decode_steps = 0;  // generated tokens that were fed back
  Duration decode{};
  // 0 if there was nothing to measure.
  [[nodiscard]] double PrefillTokensPerSecond() const;
  [[nodiscard]] double DecodeTokensPerSecond() const;
};

// Errors: kInvalidArgument (BAD_REQUEST) for an empty prompt, sampling options out of range or a
// text with more tokens than the model has positions; those of Decoder::Forward. Tokens that were
// passed to on_token before an error stay valid.
absl::StatusOr<GenerateReport> Generate(const GenerateParts& parts, const GenerateOptions& options);

}  // namespace switchyard::qwen3_moe
