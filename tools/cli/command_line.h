// Options and exit codes that generate, verify and eval have in common.
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

enum ExitCode : int { kExitPassed = 0, kExitOutside = 1, kExitCouldNotRun = 2 };

struct CommonOptions {
  std::string model_dir;
  MoeOptions moe;
  std::string format = "table";  // or "json"

  [[nodiscard]] bool json() const { return format == "json"; }
};

// Adds --model, the options of the MoE layer, and --format where `with_format`.
void AddCommonOptions(CLI::App& app, CommonOptions& options, bool with_format);

// nullopt when the options are read; else the exit code, after usage or complaint was printed.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv);

// A model ready to run: checkpoint, decoder and the way to the experts.
struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<MoeProvider> moe;
};
absl::StatusOr<Model> OpenModel(const CommonOptions& options);

// Says on stderr (and as an object on stdout, in json) why the program could not do its work.
int CouldNotRun(const absl::Status& status, const CommonOptions& options);

// The whole of a file of at most 1 GiB. Errors: kNotFound, kPermissionDenied, kInvalidArgument
// (BAD_REQUEST), naming it.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace switchyard::qwen3_moe
