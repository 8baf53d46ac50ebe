#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "examples/qwen3_moe/sampling.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

// All positions in one pass: with the golden prefix, an early mismatch does not affect later ones.
absl::Status CompareTop1(const TextCheck& check, TextResult& result) {
  const GoldenText& text = check.text;
  KvCache cache = check.decoder.MakeCache(text.ids.size());
  SY_ASSIGN_OR_RETURN(const std::vector<float> logits,
                      check.decoder.Forward(cache, {.tokens = text.ids, .logits = LogitsOf::kAll},
                                            check.moe.prefill()));
  const std::size_t vocab = check.decoder.dims().vocab;
  for (std::size_t i = 0; i < text.ids.size(); ++i) {
    const std::span<const float> golden = std::span(text.logits).subspan(i * vocab, vocab);
    const auto ours = static_cast<std::size_t>(Argmax(std::span(logits).subspan(i * vocab, vocab)));
    const auto theirs = static_cast<std::size_t>(Argmax(golden));
    ++result.positions;
    // The gap in the golden logits, not in ours: an error of ours must not make its own tie.
    const bool tie = ours != theirs && golden[theirs] - golden[ours] < check.bounds.logit_tie;
    if (ours == theirs || tie) ++result.agreed;
    if (tie) ++result.ties;
  }
  return absl::OkStatus();
}

absl::Status CompareGreedy(const TextCheck& check, TextResult& result) {
  const GoldenText& text = check.text;
  GreedyResult greedy{.prompt = text.ids, .golden = {}, .ours = {}, .difference = {}};
  greedy.golden.assign(text.greedy.begin() + static_cast<std::ptrdiff_t>(text.ids.size()),
                       text.greedy.end());
  KvCache cache = check.decoder.MakeCache(text.greedy.size());
  SY_ASSIGN_OR_RETURN(std::vector<float> logits,
                      check.decoder.Forward(cache, {.tokens = text.ids}, check.moe.prefill()));
  for (std::size_t i = 0; i < greedy.golden.size(); ++i) {
    const std::int32_t token = Argmax(logits);
    if (token != greedy.golden[i] && !greedy.difference.has_value()) {
      const float golden_logit = logits[static_cast<std::size_t>(greedy.golden[i])];
      greedy.difference = GreedyDifference{
          .position = text.ids.size() + i,
          .logit_gap = static_cast<double>(logits[static_cast<std::size_t>(token)]) -
                       static_cast<double>(golden_logit)};
    }
    // The next token is ours, not the golden one: the comparison shows what a user would see.
    greedy.ours.push_back(token);
    if (i + 1 == greedy.golden.size()) break;
    SY_ASSIGN_OR_RETURN(
        logits, check.decoder.Forward(cache, {.tokens = std::span(&token, 1)}, check.moe.decode()));
  }
  result.greedy = std::move(greedy);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextResult> CheckText(const TextCheck& check) {
  TextResult result;
  result.name = check.text.name;
  absl::Status status;
  if (!check.text.logits.empty()) status = CompareTop1(check, result);
  // The greedy check is skipped after a refusal, which would only repeat.
  if (status.ok() && check.text.greedy.size() > check.text.ids.size()) {
    status = CompareGreedy(check, result);
  }
  if (MeansUnreachable(status)) return status;
  result.refused = std::move(status);
  return result;
}

}  // namespace switchyard::qwen3_moe
