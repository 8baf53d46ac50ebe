#include "services/security/authority.h"

#include <ctime>
#include <string>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/security/certificate.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr char kId[] = "spiffe://d/worker";
constexpr std::int64_t kDay = 86400;

absl::StatusOr<CertificateFacts> FactsOf(const KeyedCertificate& authority,
                                         const KeyedCertificate& leaf) {
  return CheckTlsMaterial({authority.certificate, leaf.certificate, leaf.key}, {});
}

TEST(AuthorityTest, SignsCertificatesOfOneId) {
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate authority, MakeAuthority("ours", 100));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("ours", 100));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf, IssueCertificate(authority, kId, 10));
  SY_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts, FactsOf(authority, leaf));
  EXPECT_EQ(facts.id, kId);
  EXPECT_NEAR(static_cast<double>(facts.not_after_s),
              static_cast<double>(std::time(nullptr) + 10 * kDay), 60);
  SY_EXPECT_OK(CheckIssuer(leaf.certificate, authority.certificate));
  EXPECT_FALSE(CheckIssuer(leaf.certificate, other.certificate).ok());
  EXPECT_FALSE(CheckIssuer("", authority.certificate).ok());
}

// Whoever trusts two authorities finds the issuer of a certificate by its name.
TEST(AuthorityTest, TwoOfOneNameCanBeTrustedTogether) {
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate one, MakeAuthority("ours", 100));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("ours", 200));
  for (const KeyedCertificate& authority : {one, other}) {
    SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf, IssueCertificate(authority, kId, 10));
    for (const std::string& bundle :
         {one.certificate + other.certificate, other.certificate + one.certificate}) {
      SY_EXPECT_OK(CheckChain({bundle, leaf.certificate, leaf.key}, {}));
    }
  }
  SY_EXPECT_OK(MakeAuthority(std::string(47, 'n'), 1).status());
}

TEST(AuthorityTest, OutlivesWhatItSigns) {
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate authority, MakeAuthority("ours", 5));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf, IssueCertificate(authority, kId, 10));
  SY_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts, FactsOf(authority, leaf));
  EXPECT_LE(facts.not_after_s, std::time(nullptr) + 5 * kDay);
}

TEST(AuthorityTest, LivesFromAnHourAgoForItsDays) {
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate authority, MakeAuthority("ours", 100));
  SY_ASSERT_OK_AND_ASSIGN(const Validity life, ValidityOf(authority.certificate));
  const auto now_s = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(static_cast<double>(life.not_before_s), now_s - 3600, 60);
  EXPECT_NEAR(static_cast<double>(life.not_after_s), now_s + 100 * kDay, 60);
  EXPECT_THAT(ValidityOf("no certificate").status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(AuthorityTest, RefusesIdsAndAuthoritiesThatAreNone) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate authority, MakeAuthority("ours", 100));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 100));
  // A comma would begin another name of the certificate.
  for (const char* id : {"", "worker", "spiffe://d/a,DNS:coordinator", "spiffe://d/a b"}) {
    EXPECT_THAT(IssueCertificate(authority, id, 10).status(), bad) << id;
  }
  EXPECT_THAT(IssueCertificate({authority.certificate, other.key}, kId, 10).status(), bad);
  EXPECT_THAT(IssueCertificate({"", authority.key}, kId, 10).status(), bad);
  EXPECT_THAT(IssueCertificate({authority.certificate, ""}, kId, 10).status(), bad);
}

}  // namespace
}  // namespace switchyard
