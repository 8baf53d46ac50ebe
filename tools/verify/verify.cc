#include "tools/verify/verify.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "tools/deployment/hashed_moe.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

// Comparisons are negated, so that a NaN fails.
void CheckBlockBounds(const BlockResult& block, VerifyReport& report) {
  const std::string where = absl::StrCat("block ", block.name, " layer ", block.layer.value, ": ");
  if (!block.refused.ok()) {
    report.failures.push_back(absl::StrCat(where, "refused: ", block.refused.message(), " (",
                                           ReasonName(ReasonOf(block.refused)), ")"));
    return;
  }
  if (!(block.pooled_diff <= report.bounds.pooled_diff_max)) {
    report.failures.push_back(absl::StrFormat("%spooled calc_diff %.4g is above %.4g", where,
                                              block.pooled_diff, report.bounds.pooled_diff_max));
  }
  if (!(block.worst_row_diff <= report.bounds.row_diff_max)) {
    report.failures.push_back(absl::StrFormat("%scalc_diff %.4g of row %d is above %.4g", where,
                                              block.worst_row_diff, block.worst_row,
                                              report.bounds.row_diff_max));
  }
}

void CheckTextBounds(VerifyReport& report) {
  for (const TextResult& text : report.texts) {
    report.positions += text.positions;
    report.agreed += text.agreed;
    report.ties += text.ties;
    if (!text.refused.ok()) {
      report.failures.push_back(absl::StrCat("text ", text.name,
                                             ": refused: ", text.refused.message(), " (",
                                             ReasonName(ReasonOf(text.refused)), ")"));
    }
  }
  // Agreement is checked over all texts: a short one may miss the bound by a single position.
  const double wanted = report.bounds.top1_agreement_min * static_cast<double>(report.positions);
  if (static_cast<double>(report.agreed) < wanted) {
    report.failures.push_back(
        absl::StrFormat("top-1 agreement: %d of %d positions, fewer than %.4g %%", report.agreed,
                        report.positions, report.bounds.top1_agreement_min * 100));
  }
}

// A check that silently covers less than expected is worse than one that fails.
void NoteUnchecked(const GoldenFile& golden, VerifyReport& report) {
  for (const GoldenText& text : golden.texts()) {
    if (text.ids.empty()) {
      report.notes.push_back(
          absl::StrCat("text ", text.name, " is not checked: the file has no ", text.name, ".ids"));
    }
  }
  if (!golden.ignored().empty()) {
    report.notes.push_back(absl::StrCat(
        golden.ignored().size(), " tensor(s) of the file are not part of the golden format"));
  }
}

}  // namespace

void AddBlock(BlockResult block, VerifyReport& report) {
  CheckBlockBounds(block, report);
  report.blocks.push_back(std::move(block));
}

absl::Status Finish(HashedMoe& moe, VerifyReport& report) {
  report.digest = moe.Finish();
  SY_ASSIGN_OR_RETURN(report.experts, moe.Report());
  for (const WorkerReport& worker : report.experts.workers) {
    for (const std::string& difference : worker.differences) {
      report.failures.push_back(absl::StrCat("worker ", worker.worker, ": ", difference));
    }
  }
  return absl::OkStatus();
}

GoldenShape GoldenShapeOf(const DecoderDims& dims) {
  return {.layers = dims.layers,
          .hidden = dims.hidden,
          .vocab = dims.vocab,
          .positions = dims.max_positions};
}

absl::StatusOr<VerifyReport> Verify(const VerifyParts& parts, const VerifyBounds& bounds) {
  VerifyReport report;
  report.bounds = bounds;
  // All answers go through the hash, so that two runs can be compared bit by bit.
  HashedMoe moe(parts.moe);
  NoteUnchecked(parts.golden, report);
  for (const GoldenBlock& block : parts.golden.blocks()) {
    SY_ASSIGN_OR_RETURN(const GoldenBlockData data, parts.golden.ReadBlock(block));
    SY_ASSIGN_OR_RETURN(BlockResult result, CheckBlock({.router = parts.decoder.router(block.layer),
                                                        .block = block,
                                                        .data = data,
                                                        .moe = moe.prefill(),
                                                        .bounds = bounds}));
    AddBlock(std::move(result), report);
  }
  for (const GoldenText& text : parts.golden.texts()) {
    // NoteUnchecked has reported it.
    if (text.ids.empty()) continue;
    SY_ASSIGN_OR_RETURN(
        TextResult result,
        CheckText({.decoder = parts.decoder, .text = text, .moe = moe, .bounds = bounds}));
    report.texts.push_back(std::move(result));
  }
  // After the last text, because the bound is over all of them.
  CheckTextBounds(report);
  SY_RETURN_IF_ERROR(Finish(moe, report));
  return report;
}

}  // namespace switchyard::qwen3_moe
