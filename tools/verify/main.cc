// verify: checks the MoE layers of a model against a golden file.
// Exit codes: 0 within bounds, 1 outside, 2 not checked.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

#include "core/base/status_macros.h"
#include "tools/cli/command_line.h"
#include "tools/golden/golden_file.h"
#include "tools/verify/verify.h"
#include "tools/verify/verify_report.h"

namespace switchyard::qwen3_moe {
namespace {

struct Options {
  CommonOptions common;
  std::string golden;
};

absl::StatusOr<VerifyReport> Run(const Options& options) {
  SY_ASSIGN_OR_RETURN(const Model model, OpenModel(options.common));
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<GoldenFile> golden,
                      GoldenFile::Open(options.golden, GoldenShapeOf(model.decoder->dims())));
  return Verify({.decoder = *model.decoder, .golden = *golden, .moe = *model.moe}, VerifyBounds{});
}

int Main(int argc, char** argv) {
  CLI::App app("Checks the MoE layers of a model, wherever they run, against a golden file.",
               "verify");
  Options options;
  AddCommonOptions(app, options.common, /*with_format=*/true);
  app.add_option("--golden", options.golden, "Golden file (.safetensors)")->required();
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  const absl::StatusOr<VerifyReport> report = Run(options);
  if (!report.ok()) return CouldNotRun(report.status(), options.common);
  const std::string text = options.common.json() ? VerifyJson(*report) : VerifyTable(*report);
  std::fputs(text.c_str(), stdout);
  return report->passed() ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace switchyard::qwen3_moe

int main(int argc, char** argv) { return switchyard::qwen3_moe::Main(argc, argv); }
