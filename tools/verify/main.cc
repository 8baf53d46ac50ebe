// verify: checks the MoE layers of a model against a golden file, or random rows of one layer
// against the layer in double. Exit codes: 0 within bounds, 1 outside, 2 not checked.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cli/process_end.h"
#include "core/rng.h"
#include "model/checkpoint.h"
#include "tools/cli/command_line.h"
#include "tools/deployment/open_deployment.h"
#include "tools/golden/golden_file.h"
#include "tools/verify/verify.h"
#include "tools/verify/verify_report.h"
#include "tools/verify/verify_rows.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr std::uint64_t kSeedMax = 1'000'000'000;  // short enough to be typed again

struct Options {
  CommonOptions common;
  std::string golden;
  std::size_t rows = 0;
  std::int32_t layer = -1;  // none is asked for
  std::optional<std::uint64_t> seed;
};

absl::StatusOr<VerifyReport> RunRows(const Options& options) {
  if (options.common.moe.moe != "deployment") {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "--rows compares a deployment with the reference; use --moe deployment");
  }
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      Checkpoint::Open(options.common.model_dir));
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<MoeProvider> moe,
                      OpenDeployment(options.common.model_dir, options.common.moe));
  SystemRng rng;
  RowsCheck check{.checkpoint = *checkpoint,
                  .moe = *moe,
                  .rows = options.rows,
                  .layer = std::nullopt,
                  .seed = options.seed.value_or(rng.Below(kSeedMax))};
  if (options.layer >= 0) check.layer = LayerId{options.layer};
  return VerifyRows(check);
}

absl::StatusOr<VerifyReport> Run(const Options& options) {
  if (options.rows > 0) return RunRows(options);
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
  auto* what = app.add_option_group("what", "What to compare with");
  what->add_option("--golden", options.golden, "Golden file (.safetensors)");
  auto* rows =
      what->add_option("--rows", options.rows,
                       "Compare so many random rows of one layer with the layer in double, "
                       "computed here from the checkpoint: for any model")
          ->check(CLI::Range(1, 4096));
  what->require_option(1);
  app.add_option("--layer", options.layer, "With --rows: this layer; default: one at random")
      ->check(CLI::NonNegativeNumber)
      ->needs(rows);
  app.add_option("--seed", options.seed, "With --rows: the rows of an earlier run")->needs(rows);
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;
  const absl::StatusOr<VerifyReport> report = Run(options);
  if (!report.ok()) return CouldNotRun(report.status(), options.common);
  const std::string text = options.common.json() ? VerifyJson(*report) : VerifyTable(*report);
  std::fputs(text.c_str(), stdout);
  return report->passed() ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace switchyard::qwen3_moe

int main(int argc, char** argv) {
  switchyard::KeepTlsForThreads();
  return switchyard::qwen3_moe::Main(argc, argv);
}
