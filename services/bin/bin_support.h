// Helpers of the service programs: signals, logging, addresses, exit codes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <signal.h>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/log.h"

namespace switchyard {

// Waits for signals instead of handling them, so that no code runs in a signal handler. The
// constructor blocks the signals in the calling thread and in all threads that it starts later;
// therefore create this first in main.
class SignalWait {
 public:
  explicit SignalWait(std::initializer_list<int> signals);
  // Blocks until one of the signals arrives or Raise is called.
  void Wait();
  // Ends Wait. Callable from any thread.
  static void Raise();

 private:
  // The signals that Wait receives.
  sigset_t set_{};
};

// A logger to stderr. Errors: kInvalidArgument (BAD_CONFIG) for an unknown level.
absl::StatusOr<std::unique_ptr<Logger>> MakeLogger(const std::string& process,
                                                   const std::string& level);

// An address to listen on. Port 0 means any free port; the program prints the actual one.
struct ListenAddress {
  std::string host;
  int port = 0;
};
// Reads "host:port". Errors: kInvalidArgument (BAD_CONFIG).
absl::StatusOr<ListenAddress> ParseListen(const std::string& text);
inline constexpr int kPortMax = 65535;
inline constexpr char kSystemPortHelp[] =
    "Port for /livez, /readyz and /metrics over plain HTTP, on the host of --listen; 0: any free "
    "port; default: none";
// Prints "system host:port", from which the programs that start this one read the port. It comes
// before the line with "ready".
void SaySystemPort(const std::string& endpoint);

// The network devices of this machine that have `host`'s addresses, comma-separated: "lo" for
// 127.0.0.1. "all" for a wildcard, and for an address that no device has.
std::string NetDevicesOf(const std::string& host);

// Raises the soft limit of open files to the hard one: every session and every connection takes
// descriptors, and the usual soft limit of 1024 is meant for programs that use select. Never fails;
// returns the limit that holds.
std::uint64_t RaiseFileLimit();

// Returns 0 for OK; otherwise prints the error to stderr and returns 1.
int ExitCodeOf(const absl::Status& status);

}  // namespace switchyard
