// What the eval and generate programs print, and how any of them says that it could not run.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

#include "examples/qwen3_moe/eval.h"
#include "examples/qwen3_moe/generate.h"
#include "tools/deployment/moe_provider.h"
#include "tools/golden/golden_diff.h"

namespace switchyard::qwen3_moe {

struct EvalOutcome {
  EvalResult result;
  std::optional<double> expected;
  ExpertsReport experts;
  std::optional<GoldenDiff> golden = {};  // where a golden file was given

  [[nodiscard]] bool passed() const;
};
// Its last line is "bits per byte 1.2345", or what was planned where no window was measured.
std::string EvalTable(const EvalOutcome& outcome);
std::string EvalJson(const EvalOutcome& outcome);

// Tokens and speed of both phases, and where the experts ran. Ends with a newline.
std::string GenerateTable(const GenerateReport& report, const ExpertsReport& experts);

// What generate --text fed. Ends with a newline.
std::string FeedTable(std::size_t bytes, std::size_t windows, const ExpertsReport& experts);

// "<what, with which ids, what to do> (CODE, REASON)", one line.
std::string ErrorLine(const absl::Status& status);
std::string ErrorJson(const absl::Status& status);

}  // namespace switchyard::qwen3_moe
