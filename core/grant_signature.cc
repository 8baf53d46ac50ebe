#include "core/grant_signature.h"

#include <algorithm>

#include "core/base/canonical_io.h"
#include "core/base/hmac.h"

namespace switchyard {
namespace {

// First in what is signed, so that no other use of a key can give a grant's signature. Another list
// of claims gets another number.
constexpr char kDomain[] = "switchyard grant 1";
// The claims of a session that is bound to its opener.
constexpr char kBoundDomain[] = "switchyard grant 2";

// Every field has a fixed size or its length before it: no two claims have the same bytes.
std::string BytesOf(const GrantClaims& claims) {
  CanonicalWriter writer;
  writer.String(claims.opener.empty() ? kDomain : kBoundDomain);
  writer.Int(claims.session.high);
  writer.Int(claims.session.low);
  writer.Int(claims.cookie.value);
  writer.String(std::string(claims.deployment));
  writer.Int(claims.phase);
  writer.Int(claims.mode);
  writer.Int(claims.max_tokens);
  writer.Int(static_cast<std::uint8_t>(claims.record_amax ? 1 : 0));
  if (!claims.opener.empty()) writer.String(std::string(claims.opener));
  if (!claims.group.id.empty()) {
    writer.Int(claims.group.id.high);
    writer.Int(claims.group.id.low);
    writer.Int(claims.group.source);
    writer.Int(claims.group.sources);
    // None leave the bytes as they were before there were hosts.
    for (const std::string& host : claims.group.hosts) writer.String(host);
    if (claims.group.in_step) writer.Int(std::uint8_t{1});
  }
  return writer.Take();
}

}  // namespace

GrantKey GrantKey::Random(Rng* rng) {
  GrantKey key;
  for (std::size_t i = 0; i < key.bytes.size(); i += 8) {
    const std::uint64_t word = rng->Next();
    for (std::size_t b = 0; b < 8; ++b) {
      key.bytes[i + b] = static_cast<std::uint8_t>(word >> (8 * b));
    }
  }
  return key;
}

void AddGrantKey(const GrantKey& key, GrantKeys* keys) {
  if (key.empty() || keys->size() >= kGrantKeysMax) return;
  if (std::find(keys->begin(), keys->end(), key) == keys->end()) keys->push_back(key);
}

GrantSignature SignGrant(const GrantKey& key, const GrantClaims& claims) {
  return {HmacSha256(key.bytes, BytesOf(claims))};
}

bool VerifyGrant(const GrantKeys& keys, const GrantClaims& claims,
                 const GrantSignature& signature) {
  const std::string bytes = BytesOf(claims);
  return std::any_of(keys.begin(), keys.end(), [&](const GrantKey& key) {
    return !key.empty() && EqualInConstantTime(HmacSha256(key.bytes, bytes), signature.bytes);
  });
}

}  // namespace switchyard
