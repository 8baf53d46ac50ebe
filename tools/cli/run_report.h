// Output of the eval and generate programs, and the error output of all tools. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

#include "examples/qwen3_moe/eval.h"
#include "examples/qwen3_moe/generate.h"
#include "tools/deployment/moe_provider.h"
#include "tools/golden/golden_diff.h"

namespace switchyard::qwen3_moe {

// The result of the eval program.
struct EvalOutcome {
  EvalResult result;
  std::optional<double> expected;
  ExpertsReport experts;
  std::optional<GoldenDiff> golden = {};  // set if a golden file was given

  // False only if a figure was expected and the result differs too much from it.
  [[nodiscard]] bool passed() const;
};
// Ends with the line "bits per byte 1.2345"; if no window was measured, with the planned configs.
// Prints the experts' description too, so that a saved report shows where it was measured.
std::string EvalTable(const EvalOutcome& outcome);
// The same as one JSON object.
std::string EvalJson(const EvalOutcome& outcome);

// Tokens and speed of both phases, and where the experts ran. Ends with a newline.
std::string GenerateTable(const GenerateReport& report, const ExpertsReport& experts);

// The amount of text that generate --text fed. Ends with a newline.
std::string FeedTable(std::size_t bytes, std::size_t windows, const ExpertsReport& experts);

// The error text with "(CODE, REASON)", on one line.
std::string ErrorLine(const absl::Status& status);
// The same as an object {"verdict", "error"}.
std::string ErrorJson(const absl::Status& status);

}  // namespace switchyard::qwen3_moe
