#include "quantize/cli.h"

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cli/exit_code.h"
#include "quantize/command_line.h"
#include "quantize/report.h"

namespace switchyard::quantize {
namespace {

constexpr int kExitInterrupted = 130;
constexpr Duration kBetweenLines = std::chrono::milliseconds(100);

absl::StatusOr<QuantizeSummary> RunCommand(CommandLine line, const Surroundings& around) {
  if (!line.calibrate.empty()) {
    SY_ASSIGN_OR_RETURN(line.options.calibration, ReadAmaxFile(line.calibrate));
  }
  const TimePoint start = around.clock->Now();
  TimePoint shown = start;
  const auto observer = [&](const QuantizeProgress& progress) -> absl::Status {
    if (around.interrupted != nullptr && around.interrupted()) {
      return MakeError(absl::StatusCode::kCancelled, Reason::kUnspecified,
                       "interrupted; nothing was written under --out");
    }
    const TimePoint now = around.clock->Now();
    // A line for each tensor would slow a terminal down; the last one must show 100 %.
    const bool due = now - shown >= kBetweenLines || progress.tensors == progress.tensors_all;
    if (around.show_progress != nullptr && due) {
      shown = now;
      around.show_progress(ProgressLine(progress, now - start));
    }
    return absl::OkStatus();
  };
  return Quantize(line.options, observer);
}

}  // namespace

CliResult RunCli(const std::vector<std::string>& words, const Surroundings& surroundings) {
  ParsedCommandLine parsed = ParseCommandLine(words);
  const bool table = surroundings.out_is_terminal;
  if (!parsed.line.has_value()) {
    CliResult result{parsed.exit_code, "", ""};
    (parsed.exit_code == 0 ? result.out : result.err) = std::move(parsed.text);
    return result;
  }
  if (parsed.line->list) return {0, table ? SchemesTable() : SchemesJson(), ""};
  const absl::StatusOr<QuantizeSummary> summary = RunCommand(*std::move(parsed.line), surroundings);
  if (summary.ok()) return {0, table ? SummaryTable(*summary) : SummaryJson(*summary), ""};
  // 130 is the shell's code for a program that SIGINT ended.
  const int code = absl::IsCancelled(summary.status()) ? kExitInterrupted : kExitFailed;
  return {code, table ? "" : ErrorJson(summary.status()), ErrorText(summary.status())};
}

}  // namespace switchyard::quantize
