// Options that generate, verify and switchyard-eval share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/cli/cli11.h"
#include "core/cli/exit_code.h"
#include "examples/qwen3_moe/decoder.h"
#include "model/checkpoint.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// Options of all three programs.
struct CommonOptions {
  std::string model_dir;
  MoeOptions moe;
  std::string format = "table";  // or "json"

  // True when programs read the output.
  [[nodiscard]] bool json() const { return format == "json"; }
};

// Adds --model, the options of the MoE layer and, if `with_format`, --format.
void AddCommonOptions(CLI::App& app, CommonOptions& options, bool with_format);

// Returns nullopt if the command line is valid; otherwise the exit code, after printing the help,
// the version or the mistake. `app` has the program's name.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv);

// A model that is ready to run: checkpoint, decoder and access to the experts.
struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<MoeProvider> moe;
};
// Errors: those of Checkpoint::Open, Decoder::Load and OpenMoe.
absl::StatusOr<Model> OpenModel(const CommonOptions& options);

// Prints the error to stderr and, with --format json, as an object to stdout. Returns kExitUsage:
// for a check, kExitFailed is a measurement outside of its bounds, so that scripts can tell them
// apart.
int CouldNotRun(const absl::Status& status, const CommonOptions& options);

// The content of a file of at most 1 GiB. Errors: kNotFound, kPermissionDenied, kInvalidArgument
// (BAD_REQUEST), with its path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace switchyard::qwen3_moe
