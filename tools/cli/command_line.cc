#include "tools/cli/command_line.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cli/command_line.h"
#include "core/resolve/dtype_option.h"
#include "tools/cli/run_report.h"

namespace switchyard::qwen3_moe {

void AddCommonOptions(CLI::App& app, CommonOptions& options, bool with_format) {
  app.add_option("--model", options.model_dir, "Folder of the checkpoint")->required();
  app.add_option("--moe", options.moe.moe,
                 "Where the routed experts run: deployment, or reference (in this process)")
      ->capture_default_str();
  auto* target = app.add_option(
      "--target", options.moe.target,
      "host:port of a running deployment's coordinator (with --transport "
      "gateway: of a worker, or of several with commas between); default: start a deployment");
  app.add_option("--tls-dir", options.moe.tls_dir,
                 "Folder with ca.crt, tls.crt, tls.key and identities.yaml, for mutual TLS")
      ->needs(target);
  app.add_option("--deployment", options.moe.deployment,
                 "Name of the deployment at --target, if there are several")
      ->needs(target);
  app.add_option("--served-model", options.moe.served_model,
                 "Name of the model at --target, if it has a deployment for each phase")
      ->needs(target);
  app.add_option("--workers", options.moe.workers, "Number of workers to start")
      ->check(CLI::Range(1, 64))
      // Options of a deployment that is started have no effect on a running one.
      ->excludes(target)
      ->capture_default_str();
  app.add_option("--transport", options.moe.transport,
                 "auto, shm, tcp, gateway, loopback, or group: in lockstep with the workers")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "gateway", "loopback", "group"}))
      ->capture_default_str();
  app.add_option(
         "--mode", options.moe.mode,
         "normal, low_latency, or auto (normal for prompts, low_latency for single tokens); "
         "default: the plan's mode")
      ->check(CLI::IsMember({"normal", "low_latency", "auto"}));
  app.add_option(kDtypeFlag, options.moe.dispatcher_output_dtype,
                 "Dtype of rows for the deployment that is started: auto, bf16, fp8, int8 or nvfp4")
      ->check(CLI::IsMember({"auto", "bf16", "fp8", "int8", "nvfp4"}))
      ->excludes(target);
  app.add_option(
         "--device", options.moe.device,
         "Device of the workers that are started, as in switchyard-worker --device; several "
         "with ; between them: the workers get them in turn")
      ->excludes(target)
      ->capture_default_str();
  app.add_option(
      "--client-device", options.moe.client_device,
      "With --transport group: the device of this program's place in the group; default: "
      "that of the first worker that is started, else cpu");
  app.add_option_function<int>(
         "--retry-for",
         [&options](int seconds) { options.moe.retry_for = std::chrono::seconds(seconds); },
         "Seconds for which a step is repeated when a worker is lost; 0: its error ends the "
         "program")
      ->check(CLI::Range(0, 3600))
      ->default_str(absl::StrCat(kRetryForDefault / std::chrono::seconds(1)));
  app.add_option("--bin-dir", options.moe.bin_dir, "Folder of the service programs");
  if (with_format) {
    app.add_option("--format", options.format, "Output format: table or json")
        ->check(CLI::IsMember({"table", "json"}))
        ->capture_default_str();
  }
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv) {
  AddVersionFlag(app);
  const std::optional<ProgramEnd> end = ParseWords(app, WordsOf(argc, argv));
  if (end) return Print(*end);
  return std::nullopt;
}

absl::StatusOr<Model> OpenModel(const CommonOptions& options) {
  Model model;
  SY_ASSIGN_OR_RETURN(model.checkpoint, Checkpoint::Open(options.model_dir));
  SY_ASSIGN_OR_RETURN(model.decoder, Decoder::Load(*model.checkpoint));
  // Last, because it may start a deployment, which takes seconds.
  SY_ASSIGN_OR_RETURN(model.moe, OpenMoe(*model.checkpoint, model.decoder->dims(), options.moe));
  return model;
}

int CouldNotRun(const absl::Status& status, const CommonOptions& options) {
  std::fprintf(stderr, "%s\n", ErrorLine(status).c_str());
  if (options.json()) std::fputs(ErrorJson(status).c_str(), stdout);
  return kExitUsage;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  // Bounded, because a path such as /dev/zero would otherwise fill the memory.
  constexpr std::size_t kBytesMax = std::size_t{1} << 30;
  const auto refuse = [&path](absl::StatusCode code, absl::string_view what) {
    return MakeError(code, Reason::kBadRequest, absl::StrCat("text file ", path, ": ", what),
                     {{"file", path}});
  };
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    // errno must be saved before other calls change it.
    const int error = errno;
    return refuse(absl::ErrnoToStatusCode(error),
                  absl::StrCat("cannot be opened: ", std::strerror(error)));
  }
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kBytesMax) {
      return refuse(absl::StatusCode::kInvalidArgument, "larger than 1 GiB; use a shorter text");
    }
  }
  if (file.bad()) {
    return refuse(absl::StatusCode::kInvalidArgument, "cannot be read; use a regular file");
  }
  return text;
}

}  // namespace switchyard::qwen3_moe
