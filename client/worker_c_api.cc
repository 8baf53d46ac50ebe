// The functions of switchyard_worker.h.
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "client/c_structures.h"
#include "client/c_worker.h"
#include "client/status_json.h"
#include "client/switchyard_worker.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cli/command_line.h"
#include "services/bin/bin_support.h"
#include "services/bin/running_worker.h"
#include "services/bin/worker_options.h"
#include "services/options/read_options.h"
#include "worker/registry/device_registry.h"

struct sy_worker::Parts {
  // Outlives the worker, and its device, which ranks of clients keep.
  std::shared_ptr<switchyard::ProgramLog> log;
  std::string system_endpoint;  // set before the worker has started
  std::atomic<bool> has_ended{false};
  std::unique_ptr<switchyard::RunningWorker> worker;
};

sy_worker::sy_worker() : parts(std::make_unique<Parts>()) {}
sy_worker::~sy_worker() = default;

namespace {

using switchyard::CopyOut;
using switchyard::MakeError;
using switchyard::Reason;

// More than any command line needs: a count beyond it was never set.
constexpr std::uint32_t kArgumentsMax = 4096;

absl::Status BadArguments(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("arguments of the worker: ", what));
}

absl::StatusOr<std::vector<std::string>> WordsOf(const sy_worker_options* options) {
  sy_worker_options given;
  if (!switchyard::ReadStructure(options, {}, &given)) {
    return BadArguments("no sy_worker_options with size and abi_version; see switchyard_worker.h");
  }
  if (given.argument_count > kArgumentsMax ||
      (given.arguments == nullptr && given.argument_count > 0)) {
    return BadArguments(absl::StrCat(given.argument_count, " of them; give up to ", kArgumentsMax));
  }
  std::vector<std::string> words;
  for (std::uint32_t i = 0; i < given.argument_count; ++i) {
    if (given.arguments[i] == nullptr) return BadArguments(absl::StrCat("number ", i, " is NULL"));
    words.emplace_back(given.arguments[i]);
  }
  return words;
}

absl::StatusOr<std::unique_ptr<sy_worker>> Open(const sy_worker_options* options) {
  SY_ASSIGN_OR_RETURN(const std::vector<std::string> words, WordsOf(options));
  switchyard::WorkerSettings settings;
  const switchyard::OptionTable table = WorkerOptionTable(&settings);
  if (const auto end = ReadOptions(table, words)) return BadArguments(end->text);
  auto made = std::make_unique<sy_worker>();
  sy_worker::Parts* const self = made->parts.get();
  self->log = std::make_shared<switchyard::ProgramLog>(
      "worker " + settings.id, settings.log, std::vector<switchyard::ProgramLog::Library>());
  SY_ASSIGN_OR_RETURN(
      self->worker,
      switchyard::RunningWorker::Start(
          settings,
          {.make_device = &switchyard::MakeDevice,
           .logger = self->log->logger(),
           .on_system_port = [self](const std::string& at) { self->system_endpoint = at; },
           .on_end = [self] { self->has_ended.store(true); }}));
  // Whoever has the one has the other.
  using Kept =
      std::pair<std::shared_ptr<switchyard::ProgramLog>, std::shared_ptr<switchyard::RankHost>>;
  const auto kept = std::make_shared<Kept>(self->log, self->worker->rank_host());
  made->rank_host = std::shared_ptr<switchyard::RankHost>(kept, kept->second.get());
  return made;
}

sy_code Say(const absl::Status& status, char* error, std::size_t size) {
  CopyOut(switchyard::ErrorJson(status), error, size);
  return static_cast<sy_code>(status.code());
}

}  // namespace

extern "C" {

sy_code sy_worker_open(const sy_worker_options* options, sy_worker** out, char* error,
                       size_t error_size) {
  if (out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  auto opened = Open(options);
  if (opened.ok()) *out = opened->release();
  return Say(opened.status(), error, error_size);
}

size_t sy_worker_status(const sy_worker* worker, char* buffer, size_t size) {
  if (worker == nullptr) return 0;
  const sy_worker::Parts& parts = *worker->parts;
  const nlohmann::ordered_json status = {{"endpoint", parts.worker->endpoint()},
                                         {"system_endpoint", parts.system_endpoint},
                                         {"state", parts.has_ended ? "ended" : "running"}};
  return CopyOut(status.dump(), buffer, size);
}

sy_code sy_worker_close(sy_worker* worker, char* error, size_t error_size) {
  const std::unique_ptr<sy_worker> owned(worker);
  return Say(owned == nullptr ? absl::OkStatus() : owned->parts->worker->End(), error, error_size);
}

}  // extern "C"
