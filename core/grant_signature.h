// Signed grants: how a worker knows that the coordinator of its deployment granted a session.
//
//   coordinator: key of the deployment --SignGrant--> signature, in the session's grant
//   PREPARE:     the key goes to every worker of the plan
//   source:      id, cookie, limits and signature, in each Attach
//   worker:      VerifyGrant, before the attachment costs anything
//
// One key for a deployment and not for an epoch: a session outlives epochs, and attaches to workers
// that join after it was opened (docs/adr/0011-signed-grants.md). Keys and signatures are secrets:
// they are never logged, and nothing here prints them. Pure; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/dispatch_config.h"
#include "core/group_messages.h"
#include "core/ids.h"
#include "core/rng.h"

namespace switchyard {

// Known to a deployment's coordinator and workers only. All zero: none.
struct GrantKey {
  std::array<std::uint8_t, 32> bytes{};

  // `rng` is a SystemRng, except in tests and the simulation.
  static GrantKey Random(Rng* rng);
  [[nodiscard]] bool empty() const { return *this == GrantKey{}; }
  friend bool operator==(const GrantKey&, const GrantKey&) = default;
};

// The keys of a deployment, the one that signs first. The others are those of coordinators whose
// store was lost: their sessions go on.
using GrantKeys = std::vector<GrantKey>;
// Each of them costs a worker an HMAC at every Attach that is refused.
inline constexpr std::size_t kGrantKeysMax = 4;
// Adds `key` unless it is empty or known, or there are kGrantKeysMax.
void AddGrantKey(const GrantKey& key, GrantKeys* keys);

// The keys that a worker holds of a deployment.
struct DeploymentKeys {
  std::string deployment;
  GrantKeys keys;
  friend bool operator==(const DeploymentKeys&, const DeploymentKeys&) = default;
};

// All zero: not signed.
struct GrantSignature {
  std::array<std::uint8_t, 32> bytes{};
  friend bool operator==(const GrantSignature&, const GrantSignature&) = default;
};

// A signature covers these: everything of a grant that a worker relies on.
struct GrantClaims {
  SessionId session;
  Cookie cookie;
  absl::string_view deployment;
  Phase phase = Phase::kMixed;
  DispatchMode mode = DispatchMode::kNormal;
  std::int32_t max_tokens = 0;
  bool record_amax = false;
  GroupGrant group = {};
  // The SPIFFE id of who may use the session (docs/adr/0024-sessions-of-one-identity.md). Empty:
  // whoever has the grant, and the bytes are those that releases without this claim sign.
  absl::string_view opener = {};
};

GrantSignature SignGrant(const GrantKey& key, const GrantClaims& claims);
// True when one of `keys` made the signature. Never by an empty key.
bool VerifyGrant(const GrantKeys& keys, const GrantClaims& claims, const GrantSignature& signature);

}  // namespace switchyard
