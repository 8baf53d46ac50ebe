// What the service programs share: signals, logging, addresses, exit codes.
#pragma once

#include <initializer_list>
#include <memory>
#include <signal.h>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "core/mutant.h"

namespace switchyard {

// SIGTERM and SIGINT as something to wait for, instead of a handler. Blocks the given signals in
// the calling thread and all that it starts: made first thing in main.
class SignalWait {
 public:
  explicit SignalWait(std::initializer_list<int> signals);
  // Blocks until one of them comes, or Raise.
  void Wait();
  // From any thread.
  static void Raise();

 private:
  sigset_t set_{};
};

// Errors: kInvalidArgument (BAD_CONFIG) for an unknown level.
absl::StatusOr<std::unique_ptr<Logger>> MakeLogger(const std::string& process,
                                                   const std::string& level);

struct ListenAddress {
  std::string host;
  int port = 0;
};
// "host:port". Errors: kInvalidArgument (BAD_CONFIG).
absl::StatusOr<ListenAddress> ParseListen(const std::string& text);

// kNone for "". Errors: kInvalidArgument (BAD_CONFIG) for a name that this build does not have.
absl::StatusOr<MutantId> MutantOption(const std::string& name);

// 0 for OK; else prints the error on stderr and returns 1.
int ExitCodeOf(const absl::Status& status);

}  // namespace switchyard
