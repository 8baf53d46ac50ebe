// Checks MoE layers, in this process or in a deployment, against a golden file.
//
// Blocks: each `<name>.lL.moe_in` is routed here in FP32 by the layer's own router and sent to the
// MoE function. The result is compared with moe_out by calc_diff, over all rows and row by row. A
// row whose router logits k and k+1 are nearly equal may match with either choice, because rounding
// decides between them.
// Texts: logits are teacher-forced and compared by their largest value. Where the golden logits of
// the two tokens are nearly equal, either may be the largest: with few positions, one such tie
// would otherwise decide the whole check. Greedy text is shown next to the golden text but does not
// affect the result, because one near tie changes all that follows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "core/ids.h"
#include "examples/qwen3_moe/decoder.h"
#include "tools/deployment/moe_provider.h"
#include "tools/golden/golden_file.h"

namespace switchyard::qwen3_moe {

// The limits for passing.
struct VerifyBounds {
  double pooled_diff_max = 1.5e-5;   // calc_diff over all rows of a block
  double row_diff_max = 2.5e-5;      // calc_diff of each row
  double top1_agreement_min = 0.98;  // over all positions of all texts
  float near_tie = 1e-3F;            // router logits closer than this are nearly equal
  // Golden logits of two tokens closer than this are nearly equal: their probabilities differ by
  // less than 2 %. Rounding rows to BF16 or FP8 moves logits of the shipped model by as much.
  float logit_tie = 0.02F;
};

// The result of one block.
struct BlockResult {
  std::string name;
  LayerId layer;
  std::size_t rows = 0;
  double pooled_diff = 0;
  // The worst row explains a failure better than the pool, in which one row can vanish.
  double worst_row_diff = 0;
  std::size_t worst_row = 0;
  std::size_t near_ties = 0;  // rows with nearly equal router logits k and k+1
  // Counted separately, because many of them mean that the bound hides real differences.
  std::size_t other_choice = 0;  // near ties that matched with expert k+1 in place of k
  absl::Status refused;          // not OK: the MoE function refused a row; ignore the numbers
  bool passed = false;
};

// The first position at which two greedy texts differ.
struct GreedyDifference {
  std::size_t position = 0;  // in the text including the prompt
  // Our logit of our token minus our logit of the golden token. A small value is a near tie.
  double logit_gap = 0;
};
// Two greedy texts for the same prompt.
struct GreedyResult {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> golden;  // without the prompt
  std::vector<std::int32_t> ours;    // as long as `golden`
  std::optional<GreedyDifference> difference;
};

// The result of one text.
struct TextResult {
  std::string name;
  std::size_t positions = 0;  // with golden logits
  std::size_t agreed = 0;     // near ties included
  std::size_t ties = 0;  // of those, positions where our token is another one of nearly equal logit
  // Unset unless the golden text continues its prompt.
  std::optional<GreedyResult> greedy;
  absl::Status refused;  // as in BlockResult
};

// The result of a whole check.
struct VerifyReport {
  VerifyBounds bounds;
  std::vector<BlockResult> blocks;
  std::vector<TextResult> texts;
  std::size_t positions = 0;  // of all texts
  std::size_t agreed = 0;
  std::size_t ties = 0;
  bool routed_here = true;  // false: rows came with their experts, and no tie decides anything
  Sha256Digest digest;      // of all answers, row by row; equal digests mean bit-equal answers
  ExpertsReport experts;
  std::vector<std::string> notes;     // parts that were not checked, and why
  std::vector<std::string> failures;  // one sentence each, with block or worker; empty: passed
  // Notes do not count: parts that were not checked do not fail the rest.
  [[nodiscard]] bool passed() const { return failures.empty(); }
};

// The sizes of a golden file for a model of `dims`.
GoldenShape GoldenShapeOf(const DecoderDims& dims);

// The objects to check. All must outlive Verify.
struct VerifyParts {
  const Decoder& decoder;
  const GoldenFile& golden;
  MoeProvider& moe;
};

// Returns a report if the check could be made, whether it passed or not. Errors: the golden file
// cannot be read, or the experts are not available (kUnavailable, kDeadlineExceeded, kCancelled
// from the MoE function). Any other error of the MoE function fails its block or text.
absl::StatusOr<VerifyReport> Verify(const VerifyParts& parts, const VerifyBounds& bounds);

}  // namespace switchyard::qwen3_moe
