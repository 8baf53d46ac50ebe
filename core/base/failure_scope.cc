#include "core/base/failure_scope.h"

#include <array>
#include <string>

#include "absl/strings/cord.h"

namespace switchyard {
namespace {
constexpr char kScopeUrl[] = "switchyard/failure_scope";
constexpr std::array<const char*, 4> kNames{"request", "peer", "communicator", "worker"};
}  // namespace

absl::string_view FailureScopeName(FailureScope scope) {
  return kNames[static_cast<std::size_t>(scope)];
}

absl::Status WithScope(absl::Status status, FailureScope scope) {
  if (!status.ok()) {
    const absl::string_view name = FailureScopeName(scope);
    status.SetPayload(kScopeUrl, absl::Cord(name));
  }
  return status;
}

FailureScope ScopeOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kScopeUrl);
  // An unknown scope, from a newer peer, reads as the smallest one: membership must not act on it.
  if (payload.has_value()) {
    const std::string name(*payload);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (name == kNames[i]) return static_cast<FailureScope>(i);
    }
  }
  return FailureScope::kRequest;
}

}  // namespace switchyard
