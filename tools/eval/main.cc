// switchyard-eval: measures bits per byte of a text.
// Exit codes: 0 measured (and as expected, with --expect), 1 not as expected, 2 not measured.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

#include "core/base/status_macros.h"
#include "core/cli/process_end.h"
#include "examples/qwen3_moe/eval.h"
#include "tools/cli/command_line.h"
#include "tools/cli/run_report.h"
#include "tools/golden/golden_diff.h"
#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {
namespace {

struct Options {
  CommonOptions common;
  std::string text;
  std::size_t windows = 0;
  std::optional<double> expected;
  std::string golden;
  bool plan_only = false;
};

absl::StatusOr<EvalOutcome> Run(const Options& options) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.text));
  SY_ASSIGN_OR_RETURN(const Model model, OpenModel(options.common));
  const std::size_t windows = options.windows == 0 ? EvalWindowsIn(text.size()) : options.windows;
  EvalOptions eval{.windows = windows, .progress = nullptr};
  // Progress only on a terminal; in a log file, each update would be a line.
  if (isatty(STDERR_FILENO) != 0) {
    eval.progress = [windows](std::size_t done, double bits_per_byte) {
      std::fprintf(stderr, "\rwindow %zu of %zu, %.4f bits per byte so far%s", done, windows,
                   bits_per_byte, done == windows ? "\n" : "");
    };
  }
  EvalOutcome outcome{.result = {}, .expected = options.expected, .experts = {}};
  // The deployment has its plan once the sessions are open, so nothing needs to be fed.
  if (options.plan_only) {
    SY_ASSIGN_OR_RETURN(outcome.experts, model.moe->Report());
    return outcome;
  }
  if (!options.golden.empty()) {
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<GoldenFile> golden,
                        GoldenFile::Open(options.golden, GoldenShapeOf(model.decoder->dims())));
    SY_ASSIGN_OR_RETURN(outcome.golden,
                        MeasureGoldenDiff(*model.decoder, *golden, model.moe->prefill()));
  }
  SY_ASSIGN_OR_RETURN(outcome.result, Evaluate(*model.decoder, model.moe->prefill(), text, eval));
  SY_ASSIGN_OR_RETURN(outcome.experts, model.moe->Report());
  return outcome;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures how well a model predicts a text, in bits per byte.", "switchyard-eval");
  Options options;
  AddCommonOptions(app, options.common, /*with_format=*/true);
  app.add_option("--text", options.text, "File with the text")->required();
  app.add_option("--windows", options.windows, "Number of windows of 512 bytes; default: all")
      ->check(CLI::PositiveNumber);
  app.add_option("--expect", options.expected,
                 "Expected bits per byte; the result must be within 0.3 %")
      ->check(CLI::PositiveNumber);
  app.add_option("--golden", options.golden,
                 "Golden file (.safetensors): print the distance of logits and MoE layers from it");
  app.add_flag("--plan-only", options.plan_only, "Only print how rows would travel")
      ->excludes("--expect");
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  const absl::StatusOr<EvalOutcome> outcome = Run(options);
  if (!outcome.ok()) return CouldNotRun(outcome.status(), options.common);
  const std::string text = options.common.json() ? EvalJson(*outcome) : EvalTable(*outcome);
  std::fputs(text.c_str(), stdout);
  return outcome->passed() ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace switchyard::qwen3_moe

int main(int argc, char** argv) {
  switchyard::KeepTlsForThreads();
  return switchyard::qwen3_moe::Main(argc, argv);
}
