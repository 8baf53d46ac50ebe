// Helpers of the service programs: signals, logging, network devices, exit codes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <signal.h>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "services/bin/program_options.h"
#include "services/security/transport_security.h"
#include "services/system/metrics_text.h"

namespace switchyard {

// Waits for signals instead of handling them, so that no code runs in a signal handler. The
// constructor blocks the signals in the calling thread and in all threads that it starts later;
// therefore create this first in main.
class SignalWait {
 public:
  SignalWait(std::initializer_list<int> signals);  // NOLINT(google-explicit-constructor)
  // Blocks until one of the signals arrives, and returns it; SIGTERM after Raise.
  int Wait();
  // Ends Wait. Callable from any thread.
  static void Raise();

 private:
  // The signals that Wait receives.
  sigset_t set_{};
};

// An error that ends the program, from whichever thread. Thread-safe.
class FatalError {
 public:
  explicit FatalError(SignalWait* signals) : signals_(signals) {}
  // Ends the wait for signals. The first error stays.
  void Report(const absl::Status& why);
  [[nodiscard]] absl::Status why() const;

 private:
  SignalWait* const signals_;
  mutable Mutex mutex_;
  absl::Status why_ SY_GUARDED_BY(mutex_);
};

// The log of a program: its own lines and those of the libraries that it uses. Not thread-safe; the
// logger is.
class ProgramLog {
 public:
  // Makes a library write in this format from this level up.
  using Library = void (*)(LogFormat format, LogLevel level);

  // The settings were checked when they were read.
  ProgramLog(absl::string_view process, const LogSettings& settings,
             std::vector<Library> libraries);

  [[nodiscard]] Logger* logger() { return &logger_; }
  // Waits for SIGTERM or SIGINT. SIGUSR1 and SIGUSR2 change the level meanwhile: to debug, and back
  // to what was configured. Signals and no RPC, because the ports have no authentication: only the
  // process's own user may change what it logs, and can when all its ports are stuck.
  void WaitForEnd(SignalWait* signals);

 private:
  void SetLevel(LogLevel level);

  const LogLevel configured_;
  const std::vector<Library> libraries_;
  Logger logger_;
};

// Prints "system host:port", from which the programs that start this one read the port. It comes
// before the line with "ready".
void SaySystemPort(const std::string& endpoint);

// The certificate's metrics (AddCertificate) as its file is now. Nothing without `security`.
void AddOwnCertificate(const TransportSecurity* security, MetricsText* text);

// The network devices of this machine that have `host`'s addresses, comma-separated: "lo" for
// 127.0.0.1. "all" for a wildcard, and for an address that no device has.
std::string NetDevicesOf(const std::string& host);

// Raises the soft limit of open files to the hard one: every session and every connection takes
// descriptors, and the usual soft limit of 1024 is meant for programs that use select. Never fails;
// returns the limit that holds.
std::uint64_t RaiseFileLimit();

// The exit code of a program that ends with `status`, after saying why: kExitDone for OK;
// kExitUsage for a configuration that cannot work (INVALID_ARGUMENT with BAD_CONFIG), or not with
// this build (UNIMPLEMENTED with UNSUPPORTED), since another start would end in the same way; else
// kExitFailed. The reason is written at any level of the log.
int EndWith(const absl::Status& status, Logger* logger);

}  // namespace switchyard
