#include "services/config/security_files.h"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
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
