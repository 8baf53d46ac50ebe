#include "ctl/certs/certs.h"

#include <ctime>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "ctl/syctl.h"
#include "services/config/security_files.h"
#include "services/security/authority.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ReadBytes;
using switchyard::testing::TempDir;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kDay = 86400;

CertsOptions OptionsFor(const TempDir& dir) {
  CertsOptions options;
  options.dir = dir.Join("certs");
  options.trust_domain = "moe.example";
  return options;
}

std::int64_t Now() { return std::time(nullptr); }

TEST(EnsureCertificatesTest, MakesWhatAProcessOfEachRoleOpens) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  options.prefix = "ns/moe/";
  options.also = {"engine-a:source,observer"};
  SY_ASSERT_OK_AND_ASSIGN(const auto report, EnsureCertificates(options, Now()));
  EXPECT_THAT(report.rows, AllOf(SizeIs(6), Each(Field(&CertificateRow::what, "made"))));
  for (const CertificateRow& row : report.rows) {
    SY_ASSERT_OK_AND_ASSIGN(
        const auto security,
        OpenSecurity(absl::StrCat(options.dir, "/", row.name), /*logger=*/nullptr));
    EXPECT_EQ(security->own().id, absl::StrCat("spiffe://moe.example/ns/moe/", row.name));
    EXPECT_NEAR(static_cast<double>(row.not_after_s), static_cast<double>(Now() + 90 * kDay), 60);
  }
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable table,
                          ReadIdentities(absl::StrCat(options.dir, "/identities.yaml")));
  EXPECT_EQ(table.Find("spiffe://moe.example/ns/moe/engine-a")->roles,
            (Roles{Role::kSource, Role::kObserver}));
  for (const char* secret : {"authority/ca.key", "worker/tls.key"}) {
    const auto mode = std::filesystem::status(absl::StrCat(options.dir, "/", secret)).permissions();
    EXPECT_EQ(static_cast<unsigned>(mode), 0600U) << secret;
  }
}

TEST(EnsureCertificatesTest, KeepsWhatIsGoodAndRenewsWhatSoonEnds) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  const std::string authority = ReadBytes(absl::StrCat(options.dir, "/authority/ca.crt"));
  const std::string worker = ReadBytes(absl::StrCat(options.dir, "/worker/tls.crt"));
  options.trust_domain.clear();  // it is known now

  SY_ASSERT_OK_AND_ASSIGN(auto report, EnsureCertificates(options, Now() + 59 * kDay));
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "kept")));
  EXPECT_EQ(ReadBytes(absl::StrCat(options.dir, "/worker/tls.crt")), worker);

  SY_ASSERT_OK_AND_ASSIGN(report, EnsureCertificates(options, Now() + 61 * kDay));
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "renewed")));
  EXPECT_NE(ReadBytes(absl::StrCat(options.dir, "/worker/tls.crt")), worker);
  EXPECT_EQ(ReadBytes(absl::StrCat(options.dir, "/authority/ca.crt")), authority);
}

// Of another authority, for another id, or with a key that is not its own.
TEST(EnsureCertificatesTest, ReplacesWhatDoesNotFit) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  const std::string folder = absl::StrCat(options.dir, "/");
  std::filesystem::copy(folder + "source/tls.crt", folder + "worker/tls.crt",
                        std::filesystem::copy_options::overwrite_existing);
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 10));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf,
                          IssueCertificate(other, "spiffe://moe.example/observer", 90));
  dir.Write("certs/observer/tls.crt", leaf.certificate);
  dir.Write("certs/observer/tls.key", leaf.key);

  SY_ASSERT_OK_AND_ASSIGN(const auto report, EnsureCertificates(options, Now()));
  for (const CertificateRow& row : report.rows) {
    const bool spoiled = row.name == "worker" || row.name == "observer";
    EXPECT_EQ(row.what, spoiled ? "renewed" : "kept") << row.name;
    SY_EXPECT_OK(OpenSecurity(folder + row.name, nullptr).status());
  }
}

// Identities and bundles are their user's: what somebody added stays.
TEST(EnsureCertificatesTest, LeavesWhatPeopleAdded) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  const std::string path = absl::StrCat(options.dir, "/identities.yaml");
  const std::string changed =
      ReadBytes(path) + "# ours\n- {id: spiffe://moe.example/ci, roles: [observer]}\n";
  dir.Write("certs/identities.yaml", changed);
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 10));
  const std::string bundle = ReadBytes(options.dir + "/worker/ca.crt") + other.certificate;
  dir.Write("certs/worker/ca.crt", bundle);

  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  EXPECT_EQ(ReadBytes(path), changed);
  EXPECT_EQ(ReadBytes(absl::StrCat(options.dir, "/worker/identities.yaml")), changed);
  EXPECT_EQ(ReadBytes(absl::StrCat(options.dir, "/worker/ca.crt")), bundle);
  options.also = {"late:source"};
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  EXPECT_THAT(ReadBytes(path), AllOf(HasSubstr("# ours"), HasSubstr("moe.example/late")));
}

TEST(EnsureCertificatesTest, RefusesOptionsThatMeanNothing) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  for (const char* also : {"x", "x:", ":source", "x:king", "../x:source", "authority:source",
                           "x:source,", ".x:source"}) {
    const TempDir dir;
    CertsOptions options = OptionsFor(dir);
    options.also = {also};
    EXPECT_THAT(EnsureCertificates(options, Now()).status(), bad) << also;
    EXPECT_FALSE(std::filesystem::exists(options.dir + "/authority")) << also;
  }
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  options.trust_domain = "Moe.Example";
  EXPECT_THAT(EnsureCertificates(options, Now()).status(), bad);
  options.trust_domain = "";
  EXPECT_THAT(EnsureCertificates(options, Now()).status(), bad);
  options.trust_domain = "moe.example";
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  options.trust_domain = "other.example";
  EXPECT_THAT(EnsureCertificates(options, Now()).status(), bad);
}

std::string LeafOf(const CertsOptions& options, const std::string& name) {
  return ReadBytes(absl::StrCat(options.dir, "/", name, "/tls.crt"));
}

TEST(IssueOneCertificateTest, AddsAHolderAndReplacesOneAndLeavesTheOthers) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  options.prefix = "ns/moe/";
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  const std::string worker = LeafOf(options, "worker");
  const std::string source = LeafOf(options, "source");

  options.trust_domain = "";
  options.holder = "engine-b:source,observer";
  options.days = 7;
  SY_ASSERT_OK_AND_ASSIGN(const auto added, IssueOneCertificate(options));
  ASSERT_THAT(added.rows, SizeIs(1));
  EXPECT_EQ(added.rows[0].what, "issued");
  EXPECT_EQ(added.rows[0].id, "spiffe://moe.example/ns/moe/engine-b");
  EXPECT_NEAR(static_cast<double>(added.rows[0].not_after_s), static_cast<double>(Now() + 7 * kDay),
              60);
  SY_ASSERT_OK_AND_ASSIGN(const auto security,
                          OpenSecurity(options.dir + "/engine-b", /*logger=*/nullptr));
  EXPECT_EQ(security->own().id, added.rows[0].id);
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable table,
                          ReadIdentities(options.dir + "/identities.yaml"));
  EXPECT_EQ(table.Find(added.rows[0].id)->roles, (Roles{Role::kSource, Role::kObserver}));

  // A known one needs no roles, and is new although the old one was good.
  options.holder = "worker";
  SY_ASSERT_OK(IssueOneCertificate(options).status());
  EXPECT_NE(LeafOf(options, "worker"), worker);
  EXPECT_EQ(LeafOf(options, "source"), source);
}

TEST(IssueOneCertificateTest, RefusesWhatItCannotKnow) {
  const TempDir dir;
  CertsOptions options = OptionsFor(dir);
  const auto missing = FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig);
  options.holder = "engine-b:source";
  EXPECT_THAT(IssueOneCertificate(options).status(), missing);
  EXPECT_FALSE(std::filesystem::exists(options.dir));
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  options.holder = "engine-b";
  EXPECT_THAT(IssueOneCertificate(options).status(), missing);
  for (const char* holder : {"engine-b:king", "../b:source", "authority:source", "authority", ""}) {
    options.holder = holder;
    EXPECT_THAT(IssueOneCertificate(options).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << holder;
  }
}

TEST(ShowCertificatesTest, TellsTheirStates) {
  const TempDir dir;
  const CertsOptions options = OptionsFor(dir);
  SY_ASSERT_OK(EnsureCertificates(options, Now()).status());
  const auto state = [&](std::int64_t at) {
    auto rows = ShowCertificates(options.dir + "/worker", at);
    SY_EXPECT_OK(rows.status());
    return rows.ok() ? rows->rows.at(0).what : "";
  };
  EXPECT_EQ(state(Now()), "valid");
  EXPECT_EQ(state(Now() + 91 * kDay), "expired");
  EXPECT_EQ(state(Now() - kDay), "not yet valid");
  SY_ASSERT_OK_AND_ASSIGN(const auto all, ShowCertificates(options.dir, Now()));
  EXPECT_THAT(all.rows, SizeIs(5));
  EXPECT_THAT(ShowCertificates(dir.path(), Now()).status(),
              FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig));
}

TEST(CertsVerbTest, SyctlMakesAndShowsThem) {
  const TempDir dir;
  constexpr Terminal kScreen{.is_terminal = true, .width = 120};
  const SyctlResult made =
      RunSyctl({"certs", "ensure", dir.Join("c"), "--trust-domain", "moe.example"}, kScreen);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("coordinator"), HasSubstr("made"),
                              HasSubstr("spiffe://moe.example/worker")));
  const SyctlResult issued = RunSyctl({"certs", "issue", dir.Join("c"), "late:source"}, kScreen);
  EXPECT_EQ(issued.exit_code, 0) << issued.err;
  EXPECT_THAT(issued.out, AllOf(HasSubstr("late"), HasSubstr("issued")));
  const SyctlResult shown = RunSyctl({"certs", "show", dir.Join("c"), "-o", "json"}, kScreen);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("\"state\": \"valid\""));
  EXPECT_EQ(RunSyctl({"certs", "show", dir.Join("none")}, kScreen).exit_code, 1);
  EXPECT_EQ(RunSyctl({"certs"}, kScreen).exit_code, 2);
}

}  // namespace
}  // namespace switchyard::ctl
