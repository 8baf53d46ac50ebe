#include "core/session_messages.h"

#include <array>

namespace switchyard {
namespace {
// In the order of the enumerators.
constexpr std::array<const char*, 4> kTransportNames{"auto", "shm", "tcp", "inproc"};
}  // namespace

absl::string_view TransportChoiceName(TransportChoice choice) {
  return kTransportNames[static_cast<std::size_t>(choice)];
}

bool TransportChoiceFromName(absl::string_view name, TransportChoice* choice) {
  for (std::size_t i = 0; i < kTransportNames.size(); ++i) {
    if (name == kTransportNames[i]) {
      *choice = static_cast<TransportChoice>(i);
      return true;
    }
  }
  return false;
}

GrantClaims ClaimsOf(const SessionGrant& grant) {
  return {.session = grant.session,
          .cookie = grant.cookie,
          .deployment = grant.request.deployment,
          .phase = grant.request.phase,
          // A source takes this for an unset mode; a complete request has one.
          .mode = grant.request.mode.value_or(DispatchMode::kNormal),
          .max_tokens = grant.request.max_tokens,
          .record_amax = grant.request.record_amax,
          .group = grant.group};
}

GrantClaims ClaimsOf(const AttachRequest& request) {
  return {.session = request.session,
          .cookie = request.cookie,
          .deployment = request.deployment,
          .phase = request.phase,
          .mode = request.mode,
          .max_tokens = request.max_tokens,
          .record_amax = request.record_amax};
}

GrantClaims ClaimsOf(const JoinRequest& request) {
  GrantClaims claims = ClaimsOf(request.attach);
  claims.group = request.group;
  return claims;
}

GrantClaims ClaimsOf(const WatchRequest& request) {
  return {.session = request.session,
          .cookie = request.cookie,
          .deployment = request.deployment,
          .phase = request.phase,
          .mode = request.mode,
          .max_tokens = request.max_tokens,
          .record_amax = request.record_amax,
          .group = request.group};
}

bool VerifyGrantOf(absl::string_view caller, const GrantKeys& keys, GrantClaims claims,
                   const GrantSignature& signature) {
  claims.opener = caller;
  if (VerifyGrant(keys, claims, signature)) return true;
  // Signed while the coordinator or a worker was of a release that binds no session.
  claims.opener = {};
  return !caller.empty() && VerifyGrant(keys, claims, signature);
}

}  // namespace switchyard
