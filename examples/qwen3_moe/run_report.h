// What the eval and generate programs print, and how any of them says that it could not run.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

#include "examples/qwen3_moe/eval.h"
#include "examples/qwen3_moe/generate.h"
#include "examples/qwen3_moe/moe_provider.h"

namespace switchyard::qwen3_moe {

struct EvalOutcome {
  EvalResult result;
  std::optional<double> expected;
  ExpertsReport experts;

  [[nodiscard]] bool passed() const;
};
// Its last line is "bits per byte 1.2345".
std::string EvalTable(const EvalOutcome& outcome);
std::string EvalJson(const EvalOutcome& outcome);

// Tokens and speed of both phases, and where the experts ran. Ends with a newline.
std::string GenerateTable(const GenerateReport& report, const ExpertsReport& experts);

// "<what, with which ids, what to do> (CODE, REASON)", one line.
std::string ErrorLine(const absl::Status& status);
std::string ErrorJson(const absl::Status& status);

}  // namespace switchyard::qwen3_moe
