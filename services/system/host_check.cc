#include "services/system/host_check.h"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace switchyard {
namespace {

bool IsAddress(absl::string_view host) {
  const std::string text(host);
  in6_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

absl::string_view WithoutPort(absl::string_view host) {
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    return end == absl::string_view::npos ? host : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

bool IsOwnHost(absl::string_view host, const std::vector<std::string>& names) {
  absl::string_view name = WithoutPort(host);
  if (IsAddress(name)) return true;
  // A name may end with the dot of the root.
  absl::ConsumeSuffix(&name, ".");
  if (absl::EqualsIgnoreCase(name, "localhost") || absl::EndsWithIgnoreCase(name, ".localhost")) {
    return true;
  }
  return std::any_of(names.begin(), names.end(), [name](const std::string& own) {
    return !own.empty() && absl::EqualsIgnoreCase(name, own);
  });
}

}  // namespace switchyard
