// Tells systemd, for units of Type=notify, when a program serves and when it ends.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"

namespace switchyard {

// The environment variable with the name of the socket.
inline constexpr char kNotifySocket[] = "NOTIFY_SOCKET";

// Thread-safe.
class ServiceManager {
 public:
  // `socket`: a path, or "@name" without a file; empty: nobody waits for this process.
  ServiceManager(std::string socket, Logger* logger)
      : socket_(std::move(socket)), logger_(logger) {}

  // Prints "ready host:port", from which the programs that start this one read the port, and tells
  // the service manager.
  void SayReady(const std::string& endpoint) const;
  // This process ends now. Both calls log a failure: a service without its manager still serves.
  void SayEnding() const;

  // Sends lines of sd_notify(3), such as "READY=1". Does not block. Errors: kInvalidArgument
  // (BAD_CONFIG) for a name that is no socket's; kUnavailable (NOT_READY) if nobody takes it.
  [[nodiscard]] absl::Status Send(absl::string_view state) const;

 private:
  const std::string socket_;
  Logger* const logger_;
};

}  // namespace switchyard
