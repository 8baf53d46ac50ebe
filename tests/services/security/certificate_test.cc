#include "services/security/certificate.h"

#include <ctime>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Leaf;
using testing::LeafWish;
using testing::TempDir;
using testing::TestAuthority;

const TlsFiles kFiles{.ca = "CA", .certificate = "CERTIFICATE", .key = "KEY"};
constexpr char kId[] = "spiffe://d/worker";

TlsMaterial MaterialOf(TestAuthority& authority, const LeafWish& wish) {
  const Leaf leaf = authority.Issue(wish);
  return {.ca = authority.certificate(), .certificate = leaf.certificate, .key = leaf.key};
}

TEST(CertificateTest, HasAnIdAndTimes) {
  TestAuthority authority("a");
  const std::int64_t now = std::time(nullptr);
  SY_ASSERT_OK_AND_ASSIGN(
      const CertificateFacts facts,
      CheckTlsMaterial(MaterialOf(authority, {.uris = {kId}, .dns = {"coordinator"}}), kFiles));
  EXPECT_EQ(facts.id, kId);
  EXPECT_NEAR(static_cast<double>(facts.not_before_s), static_cast<double>(now - 3600), 5);
  EXPECT_NEAR(static_cast<double>(facts.not_after_s), static_cast<double>(now + 3600), 5);
}

// Each error names the file that is wrong.
TEST(CertificateTest, RefusesWhatNoHandshakeCouldUse) {
  TestAuthority authority("a");
  const TlsMaterial good = MaterialOf(authority, {.uris = {kId}});
  const auto says = [](const TlsMaterial& material) {
    const absl::Status status = CheckTlsMaterial(material, kFiles).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    return std::string(status.message());
  };
  TlsMaterial bad = good;
  bad.ca = "-----BEGIN NOTHING-----";
  EXPECT_THAT(says(bad), HasSubstr("CA: there is no certificate"));
  bad = good;
  bad.certificate = "";
  EXPECT_THAT(says(bad), HasSubstr("CERTIFICATE: there is no certificate"));
  bad = good;
  bad.key = good.certificate;
  EXPECT_THAT(says(bad), HasSubstr("KEY: there is no unencrypted private key"));
  bad = good;
  bad.key = MaterialOf(authority, {.uris = {kId}}).key;
  EXPECT_THAT(says(bad), HasSubstr("KEY: it is not the key of the certificate in CERTIFICATE"));
  EXPECT_THAT(says(MaterialOf(authority, {.uris = {}, .dns = {"worker"}})),
              HasSubstr("CERTIFICATE: a certificate needs one URI name, its SPIFFE id; this has "
                        "none"));
  EXPECT_THAT(says(MaterialOf(authority, {.uris = {kId, "spiffe://d/coordinator"}})),
              AllOf(HasSubstr(kId), HasSubstr("spiffe://d/coordinator")));
  EXPECT_THAT(says(MaterialOf(authority, {.uris = {"https://d/worker"}})),
              HasSubstr("is no SPIFFE id"));
}

TEST(CertificateTest, ComesFromOneOfTheAuthoritiesOfTheBundleAtAnyTime) {
  TestAuthority authority("a");
  TestAuthority other("b");
  TlsMaterial material =
      MaterialOf(authority, {.uris = {kId}, .valid_from_s = -7200, .valid_until_s = -3600});
  SY_EXPECT_OK(CheckChain(material, kFiles));
  material.ca = other.certificate() + authority.certificate();
  SY_EXPECT_OK(CheckChain(material, kFiles));
  material.ca = other.certificate();
  const absl::Status status = CheckChain(material, kFiles);
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("CERTIFICATE: no authority in CA has issued it"));
}

TEST(CertificateTest, NamesAFileThatCannotBeRead) {
  const TempDir dir;
  testing::ReplaceFile(dir.Join("ca"), "x");
  const absl::Status status =
      ReadTlsFiles({.ca = dir.Join("ca"), .certificate = dir.Join("gone"), .key = dir.Join("ca")})
          .status();
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig));
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir.Join("gone")));
}

}  // namespace
}  // namespace switchyard
