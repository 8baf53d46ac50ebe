#include "services/bin/worker_program.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include <malloc.h>

#include "core/base/status_macros.h"
#include "services/bin/bin_support.h"
#include "services/bin/service_manager.h"
#include "services/bin/start_progress.h"
#include "services/bin/worker_options.h"
#include "services/config/config_file.h"
#include "services/grpc/grpc_log.h"
#include "services/options/read_options.h"
#include "worker/registry/transport_registry.h"

namespace switchyard {
namespace {

// Each expert that is loaded passes through buffers of megabytes. By default they go back to the
// system in between, and clearing their pages takes longer than anything else in loading.
void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that every glibc takes
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

// Shows what the worker loads, until it is destroyed.
std::unique_ptr<StartProgress> DrawProgress(ProgramLog* log, const RunningWorker* worker) {
  return std::make_unique<StartProgress>(
      log, EnvironmentVariable("TERM").value_or(""),
      [worker, loading = WorkerProgress(), clock = SteadyClock()]() mutable {
        return loading.Of(worker->MakeHeartbeat(), clock.Now());
      });
}

absl::Status Run(const WorkerSettings& settings, const MakeDeviceFunction& make_device,
                 SignalWait& signals, ProgramLog& log) {
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<RunningWorker> worker,
                      RunningWorker::Start(settings, {.make_device = make_device,
                                                      .logger = log.logger(),
                                                      .on_system_port = &SaySystemPort,
                                                      .on_end = &SignalWait::Raise}));
  std::unique_ptr<StartProgress> progress = DrawProgress(&log, worker.get());
  const ServiceManager manager(EnvironmentVariable(kNotifySocket).value_or(""), log.logger());
  manager.SayReady(worker->endpoint());
  log.WaitForEnd(&signals);
  progress.reset();
  manager.SayEnding();
  return worker->End();
}

}  // namespace

int RunWorkerProgram(int argc, char** argv, const MakeDeviceFunction& make_device) {
  SignalWait signals({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  RaiseFileLimit();
  WorkerSettings settings;
  const OptionTable table = WorkerOptionTable(&settings);
  if (const auto end = ReadOptions(table, WordsOf(argc, argv))) return Print(*end);
  KeepFreedMemory();
  ProgramLog log("worker " + settings.id, settings.log, {&WriteGrpcLog, &WriteTransportLogs});
  return EndWith(Run(settings, make_device, signals, log), log.logger());
}

}  // namespace switchyard
