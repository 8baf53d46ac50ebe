#include "examples/qwen3_moe/generate.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard::qwen3_moe {
namespace {

double PerSecond(std::size_t count, Duration time) {
  if (time <= Duration::zero()) return 0;
  return static_cast<double>(count) / std::chrono::duration<double>(time).count();
}

}  // namespace

double GenerateReport::PrefillTokensPerSecond() const { return PerSecond(prompt_tokens, prefill); }
double GenerateReport::DecodeTokensPerSecond() const { return PerSecond(decode_steps, decode); }

absl::StatusOr<GenerateReport> Generate(const GenerateParts& parts,
                                        const GenerateOptions& options) {
  SY_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(options.sampling));
  const std::size_t positions = parts.decoder.dims().max_positions;
  // Refused before the prefill, which can take long, and not when the cache is full.
  if (options.prompt.size() > positions || options.tokens > positions - options.prompt.size()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("a prompt of ", options.prompt.size(), " tokens and ",
                                  options.tokens, " more do not fit into the model's ", positions,
                                  " positions; shorten one of them"));
  }
  KvCache cache = parts.decoder.MakeCache(options.prompt.size() + options.tokens);
  GenerateReport report;
  report.prompt_tokens = options.prompt.size();

  const TimePoint start = parts.clock.Now();
  SY_ASSIGN_OR_RETURN(std::vector<float> logits,
                      parts.decoder.Forward(cache, {.tokens = options.prompt}, parts.prefill));
  // Sampling the first token counts as decode, so that prefill measures the model only.
  const TimePoint prefilled = parts.clock.Now();
  report.prefill = prefilled - start;

  while (report.tokens.size() < options.tokens) {
    const std::int32_t token = sampler.Next(logits);
    if (std::find(options.stop.begin(), options.stop.end(), token) != options.stop.end()) break;
    report.tokens.push_back(token);
    // Before the next step, so that a reader sees the token while the model works on it.
    if (options.on_token) options.on_token(token);
    // The last token is not fed back: its logits would not be used.
    if (report.tokens.size() == options.tokens) break;
    SY_ASSIGN_OR_RETURN(
        logits, parts.decoder.Forward(cache, {.tokens = std::span(&token, 1)}, parts.decode));
    ++report.decode_steps;
  }
  report.decode = parts.clock.Now() - prefilled;
  return report;
}

}  // namespace switchyard::qwen3_moe
