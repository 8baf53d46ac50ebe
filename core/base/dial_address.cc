#include "core/base/dial_address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace switchyard {
namespace {

constexpr int kPortMax = 65535;
// RFC 1035; more is certainly no name.
constexpr std::size_t kHostMax = 255;

// All spellings that getaddrinfo takes for "any address". "0" is one of them.
bool IsWildcard(absl::string_view host) {
  return host == "*" || host.find_first_not_of("0.") == absl::string_view::npos ||
         host.find_first_not_of("0:") == absl::string_view::npos;
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ||
         c == ':' || c == '%';
}

}  // namespace

std::string WhyNotDialable(absl::string_view endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) ||
      port < 1 || port > kPortMax) {
    return "is not \"host:port\" with a port from 1 to 65535";
  }
  absl::string_view host = endpoint.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != absl::string_view::npos) {
    return "has an IPv6 address without brackets; write \"[address]:port\"";
  }
  if (!host.empty() && IsWildcard(host)) {
    return absl::StrCat("has the wildcard ", host,
                        ", which peers cannot dial; name an address or host of this machine");
  }
  if (host.empty() || host.size() > kHostMax ||
      !std::all_of(host.begin(), host.end(), IsHostCharacter)) {
    return "has no host name or address before its port";
  }
  return "";
}

}  // namespace switchyard
