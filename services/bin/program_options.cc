#include "services/bin/program_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

absl::StatusOr<ListenAddress> ParseListen(const std::string& text) {
  // The last colon, because the host may be an IPv6 address.
  const std::size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > kPortMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("\"", text, "\" is not \"host:port\""));
  }
  address.host = text.substr(0, colon);
  return address;
}

Option ListenOption(std::string* value) {
  return TextOption({.key = "network.listen",
                     .help = "Address and port to listen on, as host:port; port 0: any free one"},
                    value, [](const std::string& text) {
                      return std::string(ParseListen(text).status().message());
                    });
}

Option SystemPortOption(std::optional<int>* value) {
  return OptionalIntegerOption(
      {.key = "network.system_port",
       .help = "Port for /livez, /readyz and /metrics over plain HTTP, on the host of --listen; 0: "
               "any free one",
       .unset = "none, which opens no such port"},
      value, {0, kPortMax});
}

void AddLogOptions(LogSettings* settings, OptionTable* table) {
  table->sections.push_back({"logging", "lines on standard error"});
  table->options.push_back(
      WordOption({.key = "logging.level",
                  .flag = "--log-level",
                  .help = "The least important lines to write; the signals USR1 and USR2 change it "
                          "while the program runs"},
                 &settings->level, {"debug", "info", "warn", "error", "off"}));
  table->options.push_back(
      WordOption({.key = "logging.format",
                  .flag = "--log-format",
                  .help = "text: lines for people; json: an object for each line; auto: text on a "
                          "terminal, json elsewhere"},
                 &settings->format, {"auto", "text", "json"}));
}

void AddSecurityOptions(std::string* tls_dir, std::string* tenants, OptionTable* table) {
  table->sections.push_back({"security", "who may connect, and what they may call"});
  table->options.push_back(TextOption(
      {.key = "security.tls_dir",
       .help =
           "Folder with ca.crt, tls.crt, tls.key and identities.yaml, for mutual TLS; the files "
           "are read again when they change",
       .unset = "none: nothing is encrypted, and anybody may call"},
      tls_dir));
  table->options.back().in_file = &PathInFolder;
  table->options.push_back(TextOption(
      {.key = "security.tenants",
       .help = "File of tenants: which sources belong together, which models they may use and how "
               "much they may have open; read again when it changes",
       .unset = "none: every source may open sessions of all models"},
      tenants));
  table->options.back().in_file = &PathInFolder;
}

}  // namespace switchyard
