// Text from a prompt: the prompt through one way to the experts, then token by token through
// another.
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

struct GenerateParts {
  const Decoder& decoder;
  const MoePath& prefill;
  const MoePath& decode;
  const Clock& clock;
};

struct GenerateOptions {
  std::span<const std::int32_t> prompt;  // at least one token
  std::size_t tokens = 0;                // at most so many; 0 gives none
  SamplingOptions sampling;
  std::span<const std::int32_t> stop;  // the text ends before one of these
  // Called with each token as soon as it is known.
  std::function<void(std::int32_t token)> on_token;
};

struct GenerateReport {
  std::vector<std::int32_t> tokens;  // without the prompt
  std::size_t prompt_tokens = 0;
  Duration prefill{};            // the prompt, up to the first token's logits
  std::size_t decode_steps = 0;  // tokens that were fed back
  Duration decode{};
  // 0 when there was nothing to time.
  [[nodiscard]] double PrefillTokensPerSecond() const;
  [[nodiscard]] double DecodeTokensPerSecond() const;
};

// Errors: kInvalidArgument (BAD_REQUEST) for an empty prompt, sampling options out of range or a
// text that is longer than the model's positions; those of Decoder::Forward. Tokens that were
// passed on before an error stay valid.
absl::StatusOr<GenerateReport> Generate(const GenerateParts& parts, const GenerateOptions& options);

}  // namespace switchyard::qwen3_moe
