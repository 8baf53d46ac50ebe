// Options and exit codes that generate, verify and eval share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "examples/qwen3_moe/decoder.h"
#include "model/checkpoint.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// 1 is reserved for a measurement outside its bounds, so that scripts can tell it from a failure.
enum ExitCode : int { kExitPassed = 0, kExitOutside = 1, kExitCouldNotRun = 2 };

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

// nullopt if the command line is valid; otherwise the exit code, after printing the help or error.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv);

// A model that is ready to run: checkpoint, decoder and access to the experts.
struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<MoeProvider> moe;
};
// Errors: those of Checkpoint::Open, Decoder::Load and OpenMoe.
absl::StatusOr<Model> OpenModel(const CommonOptions& options);

// Prints the error to stderr and, with --format json, as an object to stdout. Returns
// kExitCouldNotRun.
int CouldNotRun(const absl::Status& status, const CommonOptions& options);

// The content of a file of at most 1 GiB. Errors: kNotFound, kPermissionDenied, kInvalidArgument
// (BAD_REQUEST), with its path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace switchyard::qwen3_moe
