// Options that both service programs have.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "services/options/option.h"

namespace switchyard {

inline constexpr int kPortMax = 65535;

// An address to listen on. Port 0 means any free port; the program prints the actual one.
struct ListenAddress {
  std::string host;
  int port = 0;
};
// Reads "host:port". Errors: kInvalidArgument (BAD_CONFIG).
absl::StatusOr<ListenAddress> ParseListen(const std::string& text);

// Addresses and the system port.
struct NetworkSettings {
  std::string listen;
  std::optional<int> system_port;  // unset: none
};
Option ListenOption(std::string* value);
Option SystemPortOption(std::optional<int>* value);

struct LogSettings {
  std::string level = "info";
  std::string format = "auto";
};
// Appends the section "logging" with its options.
void AddLogOptions(LogSettings* settings, OptionTable* table);

// Appends the section "security" with its options.
void AddSecurityOptions(std::string* tls_dir, std::string* tenants, OptionTable* table);

// The last lines of each program's help: signals and exit codes.
inline constexpr char kProgramFooter[] =
    "Signals: TERM and INT end the program, USR1 logs everything (level debug), USR2 logs as\n"
    "configured again.\n"
    "Exit codes: 0 ended as asked, 1 failed or refused, 2 wrong command line or configuration.\n";

}  // namespace switchyard
