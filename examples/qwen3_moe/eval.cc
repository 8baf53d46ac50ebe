#include "examples/qwen3_moe/eval.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "examples/qwen3_moe/byte_tokenizer.h"

namespace switchyard::qwen3_moe {
namespace {

// -log2 of the probability of `target` in softmax(logits). Computed in double from the logits, so
// that a small probability does not underflow.
double Bits(std::span<const float> logits, std::int32_t target) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const auto wanted = static_cast<double>(logits[static_cast<std::size_t>(target)]);
  return (std::log(sum) + largest - wanted) / std::log(2.0);
}

}  // namespace

absl::Status CheckEvalModel(const DecoderDims& dims) {
  SY_RETURN_IF_ERROR(CheckByteVocabulary(dims.vocab));
  if (dims.max_positions >= kEvalWindow) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("the model has ", dims.max_positions, " positions; a window needs ",
                                kEvalWindow, "; use a model with more positions"));
}

std::size_t EvalWindowsIn(std::size_t bytes) { return bytes == 0 ? 0 : (bytes - 1) / kEvalWindow; }

bool MeetsExpectation(double bits_per_byte, double expected) {
  return std::abs(bits_per_byte - expected) <= kEvalTolerance * expected;
}

absl::StatusOr<EvalResult> Evaluate(const Decoder& decoder, const MoePath& moe,
                                    absl::string_view text, const EvalOptions& options) {
  SY_RETURN_IF_ERROR(CheckEvalModel(decoder.dims()));
  const std::size_t most = EvalWindowsIn(text.size());
  const std::size_t windows = options.windows == 0 ? most : options.windows;
  if (most == 0 || windows > most) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("the text has ", text.size(), " bytes, enough for ", most,
                                  " windows, not ", std::max<std::size_t>(windows, 1),
                                  "; each window needs ", kEvalWindow, " bytes and one more"));
  }
  const std::vector<std::int32_t> ids = EncodeBytes(text.substr(0, windows * kEvalWindow + 1));
  const std::size_t vocab = decoder.dims().vocab;
  KvCache cache = decoder.MakeCache(kEvalWindow);
  EvalResult result;
  double bits = 0;
  for (std::size_t window = 0; window < windows; ++window) {
    const auto tokens = std::span(ids).subspan(window * kEvalWindow, kEvalWindow + 1);
    // Each window is a new context; the cache is reused to avoid the allocation.
    cache.Clear();
    SY_ASSIGN_OR_RETURN(
        const std::vector<float> logits,
        decoder.Forward(cache, {.tokens = tokens.first(kEvalWindow), .logits = LogitsOf::kAll},
                        moe));
    for (std::size_t i = 0; i < kEvalWindow; ++i) {
      bits += Bits(std::span(logits).subspan(i * vocab, vocab), tokens[i + 1]);
    }
    result.windows = window + 1;
    result.targets = result.windows * kEvalWindow;
    result.bits_per_byte = bits / static_cast<double>(result.targets);
    // Checked in each window, so that a long run fails early and the error has the window.
    if (std::isnan(result.bits_per_byte)) {
      return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                       absl::StrCat("window ", window,
                                    " has a probability that is not a number; "
                                    "run verify to find the MoE layer"));
    }
    if (options.progress) options.progress(result.windows, result.bits_per_byte);
  }
  return result;
}

}  // namespace switchyard::qwen3_moe
