// The checks of Verify, and how their results come into its report. Internal to verify.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"
#include "tools/deployment/hashed_moe.h"
#include "tools/deployment/moe_provider.h"
#include "tools/golden/golden_file.h"
#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {

// True if `status` means that the experts are not available, as opposed to a refusal: the check
// then cannot be made, and says nothing about the model.
bool MeansUnreachable(const absl::Status& status);

// The inputs of one block's check.
struct BlockCheck {
  // A router of the decoder, so that checks use the same rule as generation.
  const Router& router;
  const GoldenBlock& block;
  const GoldenBlockData& data;
  const MoePath& moe;
  const VerifyBounds& bounds;
};
// Errors: an unavailable MoE function. A refusal is part of the result.
absl::StatusOr<BlockResult> CheckBlock(const BlockCheck& check);

// The inputs of one text's check.
struct TextCheck {
  const Decoder& decoder;
  const GoldenText& text;  // with ids
  // Uses both paths: prefill for logits, decode for greedy text.
  MoeProvider& moe;
  const VerifyBounds& bounds;
};
// Errors: as CheckBlock, and those of Decoder::Forward.
absl::StatusOr<TextResult> CheckText(const TextCheck& check);

// Adds the block, and what it fails of the report's bounds.
void AddBlock(BlockResult block, VerifyReport& report);
// After the last call: the digest of all answers, and what the workers counted. Errors: those of
// MoeProvider::Report.
absl::Status Finish(HashedMoe& moe, VerifyReport& report);

}  // namespace switchyard::qwen3_moe
