#include "services/config/security_files.h"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "services/security/stream_guard.h"
#include "services/security/table_watch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

constexpr char kGood[] =
    "identities:\n"
    "- id: spiffe://d/coordinator\n"
    "  roles: [coordinator]\n"
    "- id: spiffe://d/both\n"
    "  roles: [source, observer]\n";

TEST(ReadIdentitiesTest, ReadsRolesByTheirNames) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable table,
                          ReadIdentities(dir.Write("identities.yaml", kGood)));
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.Find("spiffe://d/both")->roles, (Roles{Role::kSource, Role::kObserver}));
  EXPECT_TRUE(table.Find("spiffe://d/both")->pools.empty());
}

TEST(ReadIdentitiesTest, ReadsPoolsOfWorkers) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(
      const IdentityTable table,
      ReadIdentities(
          dir.Write("identities.yaml",
                    "identities:\n- {id: spiffe://d/w, roles: [worker], pools: [cpu, \"on\"]}\n")));
  EXPECT_EQ(table.Find("spiffe://d/w")->pools, (std::vector<std::string>{"cpu", "on"}));
}

TEST(ReadIdentitiesTest, NamesLineAndNearestWord) {
  const TempDir dir;
  const auto says = [&dir](const std::string& text) {
    const absl::Status status = ReadIdentities(dir.Write("identities.yaml", text)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(says("identities:\n- id: spiffe://d/a\n  roles: [operater]\n"),
              AllOf(HasSubstr("identities.yaml:3"), HasSubstr("operator")));
  EXPECT_THAT(says("identities:\n- id: spiffe://d/a\n  role: [operator]\n"),
              AllOf(HasSubstr("identities.yaml:3"), HasSubstr("roles")));
  EXPECT_THAT(says("identities:\n- id: worker\n  roles: [worker]\n"),
              AllOf(HasSubstr("identities.yaml: "), HasSubstr("no SPIFFE id")));
  EXPECT_THAT(says("identities: []\n"), HasSubstr("empty"));
}

constexpr char kTenants[] =
    "tenants:\n"
    "- name: canary-red\n"
    "  ids: [spiffe://d/both]\n"
    "  models: [m, n]\n"
    "  limits: {sessions: 4, tokens: 1024, gateway_memory_bytes: 65536}\n"
    "- name: canary-blue\n"
    "  ids: [spiffe://d/later]\n";

TEST(ReadTenantsTest, ReadsModelsAndLimits) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(
      const IdentityTable table,
      ReadIdentities(dir.Write("identities.yaml", kGood), dir.Write("tenants.yaml", kTenants)));
  const Tenant* red = table.TenantOf("spiffe://d/both");
  ASSERT_NE(red, nullptr);
  EXPECT_TRUE(red->MayUse("n"));
  EXPECT_FALSE(red->MayUse("o"));
  EXPECT_EQ(red->sessions_max, 4U);
  EXPECT_EQ(red->tokens_max, 1024U);
  EXPECT_EQ(red->gateway_memory_bytes_max, 65536U);
  const Tenant* blue = table.TenantOf("spiffe://d/later");
  ASSERT_NE(blue, nullptr);
  EXPECT_TRUE(blue->MayUse("o"));
  EXPECT_EQ(blue->sessions_max, std::nullopt);
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable zero,
                          ReadIdentities(dir.Join("identities.yaml"),
                                         dir.Write("zero.yaml",
                                                   "tenants:\n- name: t\n  ids: [spiffe://d/both]\n"
                                                   "  limits: {sessions: 0}\n")));
  EXPECT_EQ(zero.TenantOf("spiffe://d/both")->sessions_max, 0U);
  // Gateways of hundreds of gigabytes have tenants with more than 2 GiB.
  SY_ASSERT_OK_AND_ASSIGN(
      const IdentityTable large,
      ReadIdentities(dir.Join("identities.yaml"),
                     dir.Write("large.yaml",
                               "tenants:\n- name: t\n  ids: [spiffe://d/both]\n"
                               "  limits: {gateway_memory_bytes: 68719476736}\n")));
  EXPECT_EQ(large.TenantOf("spiffe://d/both")->gateway_memory_bytes_max, 68719476736U);
}

TEST(ReadTenantsTest, NamesFileAndLineAndNoTenant) {
  const TempDir dir;
  const std::string identities = dir.Write("identities.yaml", kGood);
  const auto says = [&](const std::string& row) {
    const std::string path = dir.Write("t.yaml", "tenants:\n- name: canary\n" + row);
    const absl::Status status = ReadIdentities(identities, path).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << row;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("canary"))) << row;
    return std::string(status.message());
  };
  EXPECT_THAT(says("  ids: [spiffe://d/both]\n  model: [m]\n"),
              AllOf(HasSubstr("t.yaml:4: tenants[0]: there is no such key here; did you mean"),
                    HasSubstr("\"models\"? (known: name, ids, models, limits)")));
  EXPECT_THAT(
      says("  ids: [spiffe://d/both]\n  models: []\n"),
      HasSubstr("t.yaml:4: tenants[0].models: is empty; name models, or leave the key out"));
  EXPECT_THAT(says("  ids: [spiffe://d/both]\n  models: m\n"),
              HasSubstr("t.yaml:4: tenants[0].models: needs a list"));
  EXPECT_THAT(says("  ids: [spiffe://d/both]\n  limits: {sessions: -1}\n"),
              HasSubstr("t.yaml:4: tenants[0].limits.sessions: the value is not a whole number"));
  EXPECT_THAT(
      says("  ids: [spiffe://d/both]\n  limits: {gateway_memory_bytes: 9223372036854775808}\n"),
      HasSubstr("the value is not a whole number from 0 to 9223372036854775807"));
  EXPECT_THAT(says("  ids: [spiffe://d/both]\n  limits: {bytes: 1}\n"),
              HasSubstr("(known: sessions, tokens, gateway_memory_bytes)"));
  EXPECT_THAT(says("  ids: [both]\n"),
              HasSubstr("t.yaml: tenants[0].ids: \"both\" is no SPIFFE id"));
  EXPECT_THAT(says("  ids: []\n"), HasSubstr("t.yaml: tenants[0].ids: needs the ids"));
  const std::string empty = dir.Write("empty.yaml", "tenants: []\n");
  EXPECT_THAT(std::string(ReadIdentities(identities, empty).status().message()),
              HasSubstr("empty.yaml: the list is empty"));
  EXPECT_THAT(ReadIdentities(identities, dir.Join("missing.yaml")).status(),
              FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig));
}

// Whoever mistakes the form of the file has written names of tenants where keys and values belong.
TEST(ReadTenantsTest, AFileOfAnotherFormShowsNoName) {
  const TempDir dir;
  const std::string identities = dir.Write("identities.yaml", kGood);
  for (const char* text :
       {"canary:\n  ids: [spiffe://d/both]\n", "tenants:\n  canary:\n    ids: [spiffe://d/both]\n",
        "tenants:\n- canary:\n    ids: [spiffe://d/both]\n", "tenants:\n- canary\n",
        "tenants: canary\n", "canary\n", "tenants:\n- name: a\n  limits: {canary: 1}\n",
        "tenants:\n- name: a\n  limits: canary\n",
        "tenants:\n- name: a\n  limits: {sessions: canary}\n", "tenants:\n- name: [canary]\n",
        "tenants:\n- {canary: 1, canary: 2}\n", "tenants:\n- *canary\n",
        "tenants:\n- !canary!x a\n", "%canary\n---\ntenants: []\n",
        "tenants:\n- {name: \"\\canary\"\n", "tenants:\n  [canary\n", "? [canary]\n: 1\n",
        "tenants:\n- name: canary\n---\ncanary: 1\n"}) {
    const absl::Status status = ReadIdentities(identities, dir.Write("t.yaml", text)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    EXPECT_THAT(status.ToString(), AllOf(Not(HasSubstr("canary")), HasSubstr("t.yaml:"))) << text;
  }
}

// A stream of the table's last id, with a guard that looks when it is told to.
class GuardedFileTest : public ::testing::Test {
 protected:
  struct Stream : StreamGuard::Stream {
    void Revoke(const absl::Status& why) override { revoked.push_back(why); }
    void Cut() override { ++cuts; }
    std::vector<absl::Status> revoked;
    int cuts = 0;
  };

  void SetUp() override {
    Write(kGood);
    auto watch = TableWatch::Create([path = path_] { return ReadIdentities(path); }, clock_,
                                    /*logger=*/nullptr);
    SY_ASSERT_OK(watch.status());
    watch_ = *watch;
    guard_ = std::make_unique<StreamGuard>(watch_, std::chrono::hours(1));
    guard_->Add(&stream_, {"spiffe://d/both", "/switchyard.v1.CoordinatorService/WatchPlan"});
  }
  void TearDown() override { guard_->Remove(&stream_); }
  void Write(const std::string& text) { dir_.Write("identities.yaml", text); }
  // So many times, with a new reading of the file each time.
  void Look(int times) {
    for (int i = 0; i < times; ++i) {
      clock_->Advance(TableWatch::kInterval);
      guard_->Look(clock_->Now());
    }
  }

  const TempDir dir_;
  const std::string path_ = dir_.Join("identities.yaml");
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::shared_ptr<TableWatch> watch_;
  Stream stream_;
  std::unique_ptr<StreamGuard> guard_;
};

TEST_F(GuardedFileTest, AFileThatIsMissingEmptyOrWrongEndsNoStream) {
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  Look(10);
  for (const char* text : {"", "identities: []\n", "identities:\n- id: spiffe://d/bo", "\xff\xfe",
                           "identities:\n- id: spiffe://d/both\n  roles: [sour"}) {
    Write(text);
    Look(10);
    EXPECT_TRUE(stream_.revoked.empty()) << text;
    EXPECT_NE(watch_->Now()->Find("spiffe://d/both"), nullptr) << text;
  }
  Write(kGood);
  Look(2);
  EXPECT_TRUE(stream_.revoked.empty());
}

// An editor, or cp, writes in place. What is there for a moment may even be a right table.
TEST_F(GuardedFileTest, AFileThatIsReadWhileItIsWrittenEndsNoStream) {
  const std::string whole = kGood;
  int right = 0;
  for (std::size_t written = 0; written <= whole.size(); ++written) {
    Write(whole.substr(0, written));
    Look(1);
    if (watch_->Now()->Find("spiffe://d/both") == nullptr) ++right;
    Write("identities:\n- id: spiffe://d/bo");  // It takes two readings; this one fails.
    Look(2);
    Write(whole);
    Look(1);
    EXPECT_TRUE(stream_.revoked.empty()) << written;
  }
  EXPECT_GT(right, 0) << "no part of the file is a table without the id";
}

TEST_F(GuardedFileTest, AnIdThatIsTakenOutHasNoStreamAfterTwoReadings) {
  Write("identities:\n- id: spiffe://d/coordinator\n  roles: [coordinator]\n");
  Look(1);
  EXPECT_TRUE(stream_.revoked.empty());
  Look(1);
  ASSERT_EQ(stream_.revoked.size(), 1U);
  EXPECT_THAT(stream_.revoked[0],
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kTransport));
  Look(1);
  EXPECT_EQ(stream_.cuts, 1);
}

class GuardedTenantsTest : public GuardedFileTest {
 protected:
  void SetUp() override {
    GuardedFileTest::SetUp();
    guard_->Remove(&stream_);
    tenants_ = dir_.Write("tenants.yaml", kTenants);
    auto watch =
        TableWatch::Create([this] { return ReadIdentities(path_, tenants_); }, clock_, nullptr);
    SY_ASSERT_OK(watch.status());
    watch_ = *watch;
    guard_ = std::make_unique<StreamGuard>(watch_, std::chrono::hours(1));
    guard_->Add(&stream_, {"spiffe://d/both", "/switchyard.v1.CoordinatorService/WatchPlan"});
  }
  std::string tenants_;
};

TEST_F(GuardedTenantsTest, AnIdThatLosesItsTenantHasNoStreamAfterTwoReadings) {
  Look(5);
  ASSERT_TRUE(stream_.revoked.empty());
  dir_.Write("tenants.yaml", "tenants:\n- {name: other, ids: [spiffe://d/later]}\n");
  Look(1);
  EXPECT_TRUE(stream_.revoked.empty());
  Look(1);
  ASSERT_EQ(stream_.revoked.size(), 1U);
  EXPECT_THAT(stream_.revoked[0],
              FailsWith(absl::StatusCode::kPermissionDenied, Reason::kTransport));
}

// Without the file nobody would be limited, so that it must not just be gone.
TEST_F(GuardedTenantsTest, AFileOfTenantsThatIsMissingOrWrongChangesNothing) {
  ASSERT_EQ(std::remove(tenants_.c_str()), 0);
  for (const char* text : {"", "tenants: []\n", "tenants:\n- name: t", "tenants:\n- {name: t}\n"}) {
    Look(3);
    EXPECT_TRUE(stream_.revoked.empty()) << text;
    const auto table = watch_->Now();
    ASSERT_NE(table->TenantOf("spiffe://d/both"), nullptr) << text;
    EXPECT_EQ(table->TenantOf("spiffe://d/both")->sessions_max, 4U) << text;
    dir_.Write("tenants.yaml", text);
  }
}

TEST(OpenSecurityTest, TenantsNeedCertificates) {
  EXPECT_THAT(OpenSecurity("", nullptr, "tenants.yaml").status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(OpenSecurityTest, NeedsNoFolderOrAWholeOne) {
  SY_ASSERT_OK_AND_ASSIGN(const auto none, OpenSecurity("", nullptr));
  EXPECT_EQ(none, nullptr);
  const TempDir dir;
  testing::TestAuthority authority("a");
  authority.WriteFolder(dir.path(), {.uris = {"spiffe://d/both"}}, kGood);
  SY_ASSERT_OK_AND_ASSIGN(const auto security, OpenSecurity(dir.path(), nullptr));
  EXPECT_EQ(security->own().id, "spiffe://d/both");
  for (const char* file : {kCaFile, kCertificateFile, kKeyFile, kIdentitiesFile}) {
    const std::string moved = dir.Join("moved");
    ASSERT_EQ(std::rename(dir.Join(file).c_str(), moved.c_str()), 0);
    const absl::Status status = OpenSecurity(dir.path(), nullptr).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig)) << file;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    ASSERT_EQ(std::rename(moved.c_str(), dir.Join(file).c_str()), 0);
  }
}

}  // namespace
}  // namespace switchyard
