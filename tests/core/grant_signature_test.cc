#include "core/grant_signature.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"

#include "core/session_messages.h"

namespace switchyard {
namespace {

GrantKey KeyOf(std::uint64_t seed) {
  SeededRng rng(seed);
  return GrantKey::Random(&rng);
}

GrantClaims Claims() {
  return {.session = {.high = 11, .low = 12},
          .cookie = Cookie{13},
          .deployment = "demo",
          .phase = Phase::kDecode,
          .mode = DispatchMode::kLowLatency,
          .max_tokens = 512,
          .record_amax = false};
}

TEST(GrantSignatureTest, IsAcceptedUnderTheKeyThatMadeIt) {
  const GrantSignature signature = SignGrant(KeyOf(1), Claims());

  EXPECT_TRUE(VerifyGrant({KeyOf(1)}, Claims(), signature));
  EXPECT_TRUE(VerifyGrant({KeyOf(2), KeyOf(1)}, Claims(), signature)) << "a later key";
  EXPECT_FALSE(VerifyGrant({KeyOf(2)}, Claims(), signature));
  EXPECT_FALSE(VerifyGrant({}, Claims(), signature));
}

// A claim that the signature does not cover is one that a source may change.
TEST(GrantSignatureTest, CoversEveryClaim) {
  const std::vector<std::function<void(GrantClaims&)>> changes = {
      [](GrantClaims& claims) { claims.session.high ^= 1; },
      [](GrantClaims& claims) { claims.session.low ^= 1; },
      [](GrantClaims& claims) { claims.cookie.value ^= 1; },
      [](GrantClaims& claims) { claims.deployment = "dem"; },
      [](GrantClaims& claims) { claims.phase = Phase::kPrefill; },
      [](GrantClaims& claims) { claims.mode = DispatchMode::kNormal; },
      [](GrantClaims& claims) { claims.max_tokens = 513; },
      [](GrantClaims& claims) { claims.record_amax = true; },
      [](GrantClaims& claims) { claims.opener = "spiffe://d/a"; }};
  const GrantSignature signature = SignGrant(KeyOf(1), Claims());

  for (std::size_t i = 0; i < changes.size(); ++i) {
    GrantClaims claims = Claims();
    changes[i](claims);
    EXPECT_FALSE(VerifyGrant({KeyOf(1)}, claims, signature)) << i;
    EXPECT_TRUE(VerifyGrant({KeyOf(1)}, claims, SignGrant(KeyOf(1), claims))) << i;
  }
}

// Nobody but the opener, whatever else they know of the grant.
TEST(GrantSignatureTest, OfABoundSessionIsItsOpeners) {
  GrantClaims bound = Claims();
  bound.opener = "spiffe://d/a";
  const GrantSignature signature = SignGrant(KeyOf(1), bound);

  EXPECT_TRUE(VerifyGrantOf("spiffe://d/a", {KeyOf(1)}, Claims(), signature));
  for (const char* other : {"", "spiffe://d/b", "spiffe://d/", "spiffe://d/a/b"}) {
    EXPECT_FALSE(VerifyGrantOf(other, {KeyOf(1)}, Claims(), signature)) << other;
  }
  GrantClaims in_group = bound;
  in_group.group = {.id = {.high = 1, .low = 2}, .source = 0, .sources = 2};
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, in_group, signature));
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, bound, SignGrant(KeyOf(1), in_group)));
  GrantClaims hosted = in_group;
  hosted.group.hosts = {"w0", "w1"};
  GrantClaims swapped = in_group;
  swapped.group.hosts = {"w1", "w0"};
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, hosted, SignGrant(KeyOf(1), in_group)));
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, hosted, SignGrant(KeyOf(1), swapped)));
  GrantClaims in_step = hosted;
  in_step.group.in_step = true;
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, in_step, SignGrant(KeyOf(1), hosted)));
}

// Of a coordinator of a release that binds no session, or one with a worker of such a release.
TEST(GrantSignatureTest, OfAnUnboundSessionIsAnybodys) {
  const GrantSignature signature = SignGrant(KeyOf(1), Claims());

  EXPECT_TRUE(VerifyGrantOf("", {KeyOf(1)}, Claims(), signature));
  EXPECT_TRUE(VerifyGrantOf("spiffe://d/b", {KeyOf(1)}, Claims(), signature));
  EXPECT_FALSE(VerifyGrantOf("spiffe://d/b", {KeyOf(2)}, Claims(), signature));
}

TEST(GrantSignatureTest, RefusesEveryOtherSignature) {
  const GrantSignature signature = SignGrant(KeyOf(1), Claims());

  for (std::size_t i = 0; i < signature.bytes.size(); ++i) {
    GrantSignature other = signature;
    other.bytes[i] ^= 1;
    EXPECT_FALSE(VerifyGrant({KeyOf(1)}, Claims(), other)) << i;
  }
  EXPECT_FALSE(VerifyGrant({KeyOf(1)}, Claims(), {})) << "no signature";
}

// Anyone can sign with a key of zeros, which is what a missing key looks like.
TEST(GrantSignatureTest, NeverTrustsAnEmptyKey) {
  const GrantSignature forged = SignGrant({}, Claims());

  EXPECT_FALSE(VerifyGrant({GrantKey{}}, Claims(), forged));
  EXPECT_FALSE(VerifyGrant({GrantKey{}, KeyOf(1)}, Claims(), forged));
}

TEST(GrantSignatureTest, KeysAreRandomInEveryByte) {
  GrantKey any;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const GrantKey key = KeyOf(seed);
    for (std::size_t i = 0; i < key.bytes.size(); ++i) any.bytes[i] |= key.bytes[i];
  }

  for (const std::uint8_t byte : any.bytes) EXPECT_EQ(byte, 0xff);
  EXPECT_NE(KeyOf(1), KeyOf(2));
  EXPECT_TRUE(GrantKey{}.empty());
  EXPECT_FALSE(KeyOf(1).empty());
}

TEST(GrantSignatureTest, AListOfKeysIsShortAndHasEachOnce) {
  GrantKeys keys;

  for (const std::uint64_t seed : {1, 2, 1, 3, 4, 5, 6}) AddGrantKey(KeyOf(seed), &keys);
  AddGrantKey({}, &keys);

  EXPECT_EQ(keys, (GrantKeys{KeyOf(1), KeyOf(2), KeyOf(3), KeyOf(4)}));
}

}  // namespace
}  // namespace switchyard
