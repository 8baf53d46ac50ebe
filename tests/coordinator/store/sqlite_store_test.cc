// What only a store on disk can get wrong: damage, foreign files, full disks, two writers.
#include "coordinator/store/sqlite_store.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/recovery.h"
#include "coordinator/store/registry.h"
#include "coordinator/store/sqlite_database.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

const auto kStoreFailure = FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite);

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("sy_sqlite_", getpid());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "state.db").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteFile(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(SqliteStoreTest, RefusesASecondCoordinatorOnTheSameFile) {
  SY_ASSERT_OK_AND_ASSIGN(auto first, SqliteStore::Open(path_));

  const auto second = SqliteStore::Open(path_);

  ASSERT_THAT(second, kStoreFailure);
  EXPECT_NE(second.status().message().find("another coordinator"), absl::string_view::npos);
  first.reset();
  SY_EXPECT_OK(SqliteStore::Open(path_));
}

// Records hold the keys of grants.
TEST_F(SqliteStoreTest, OnlyTheOwnerMayReadItsFiles) {
  const auto mode_of = [](const std::string& path) {
    return std::filesystem::status(path).permissions() & std::filesystem::perms::all;
  };
  const auto only_owner = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path_));
    SY_ASSERT_OK(store->Write(PutDeployment{"demo", "record"}));
    EXPECT_EQ(mode_of(path_), only_owner);
    EXPECT_EQ(mode_of(path_ + "-wal"), only_owner);
  }
  // One of an earlier release.
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all |
                                          std::filesystem::perms::group_read |
                                          std::filesystem::perms::others_read);

  SY_ASSERT_OK(SqliteStore::Open(path_));

  EXPECT_EQ(mode_of(path_), only_owner);
}

TEST_F(SqliteStoreTest, RefusesAFileThatIsNoDatabase) {
  WriteFile(std::string(10'000, 'x'));

  const auto store = SqliteStore::Open(path_);

  ASSERT_THAT(store, kStoreFailure);
  EXPECT_NE(store.status().message().find(path_), absl::string_view::npos);
  EXPECT_NE(store.status().message().find("restore"), absl::string_view::npos);
}

TEST_F(SqliteStoreTest, RefusesADamagedDatabase) {
  {
    SY_ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path_));
    SY_ASSERT_OK(store->Write(PutDeployment{"d", std::string(100'000, 'r')}));
  }
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096);  // the second page, whole
  file << std::string(4096, '\xee');
  file.close();

  EXPECT_THAT(SqliteStore::Open(path_), kStoreFailure);
}

TEST_F(SqliteStoreTest, RefusesAMissingFolderAndAnEmptyPath) {
  EXPECT_THAT(SqliteStore::Open((folder_ / "no" / "state.db").string()), kStoreFailure);
  EXPECT_THAT(SqliteStore::Open(""),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST_F(SqliteStoreTest, RefusesAnotherFormat) {
  SY_ASSERT_OK(SqliteStore::Open(path_));
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(60);  // user_version, big-endian
  file << std::string("\0\0\0\x63", 4);
  file.close();

  const auto store = SqliteStore::Open(path_);

  ASSERT_THAT(store, kStoreFailure);
  EXPECT_NE(store.status().message().find("format is 99"), absl::string_view::npos);
}

// A real file of the version before revisions.
TEST_F(SqliteStoreTest, AFileOfFormat2IsTakenOverWithAllItHas) {
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto old, SqliteDatabase::Open(path_));
    std::ifstream sql(SY_STORE_FORMAT_2);
    SY_ASSERT_OK(old->Exec(std::string(std::istreambuf_iterator<char>(sql), {})));
  }
  StoredState before;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path_));
    SY_ASSERT_OK_AND_ASSIGN(before, store->Load());
    ASSERT_EQ(before.deployments.size(), 1U);
    EXPECT_EQ(before.deployments[0].deployment, "local");
    EXPECT_EQ(before.deployments[0].high_water, Epoch{2});
    EXPECT_EQ(before.deployments[0].serving, Epoch{2});
    EXPECT_EQ(before.deployments[0].plans.size(), 2U);
    EXPECT_TRUE(before.deployments[0].revisions.empty());
    EXPECT_EQ(before.deleted_high_water, Epoch{1});
    EXPECT_EQ(before.duties, (WorkerDuties{{"w1", WorkerDuty::kDraining}}));

    // What a coordinator does at its start.
    SY_ASSERT_OK_AND_ASSIGN(RecoveredState state, Recover(before));
    ASSERT_EQ(state.deployments.size(), 1U);
    EXPECT_EQ(state.deployments[0].serving->plan.epoch, Epoch{2});
    SeededRng rng(1);
    const auto upgrade = Upgrade(&state.deployments[0], &rng);
    ASSERT_TRUE(upgrade.has_value());
    SY_ASSERT_OK(store->Write(*upgrade));
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path_));
  SY_ASSERT_OK_AND_ASSIGN(const StoredState after, store->Load());
  EXPECT_EQ(after.deployments[0].plans, before.deployments[0].plans);
  SY_ASSERT_OK_AND_ASSIGN(RecoveredState state, Recover(after));
  SeededRng rng(1);
  EXPECT_FALSE(Upgrade(&state.deployments[0], &rng).has_value()) << "once";
  const Revisions::List& revisions = *state.deployments[0].revisions.list();
  ASSERT_EQ(revisions.size(), 1U);
  EXPECT_EQ(revisions[0].number, 1U);
  EXPECT_EQ(revisions[0].spec, state.deployments[0].record.spec);
  EXPECT_EQ(*revisions[0].facts, state.deployments[0].record.facts);
  EXPECT_EQ(state.deployments[0].record.revision, 1U);
}

// Files may not grow beyond a size, as on a full disk; undone at the end of the scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST_F(SqliteStoreTest, SaysWhenTheDiskIsFullAndWorksAgainAfterwards) {
  SY_ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path_));
  SY_ASSERT_OK(store->Write(PutDeployment{"d", "small"}));
  const PutDeployment big{"d", std::string(3'000'000, 'b')};
  {
    const FileSizeLimit limit(1'000'000);
    EXPECT_THAT(store->Write(big), kStoreFailure);
    SY_ASSERT_OK_AND_ASSIGN(const auto all, store->Load());
    EXPECT_EQ(all.deployments.front().record, "small");
  }

  SY_EXPECT_OK(store->Write(big));
}

TEST_F(SqliteStoreTest, KeepsWhatWasWrittenWhenTheProcessIsKilled) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = SqliteStore::Open(path_);
    const bool written = store.ok() && (*store)->Write(PutDeployment{"d", "durable"}).ok();
    if (written) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  SY_ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path_));
  SY_ASSERT_OK_AND_ASSIGN(const auto all, store->Load());
  ASSERT_EQ(all.deployments.size(), 1U);
  EXPECT_EQ(all.deployments.front().record, "durable");
}

TEST(StateStoreRegistryTest, OpensByAddress) {
  SY_EXPECT_OK(OpenStateStore("memory"));
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  EXPECT_THAT(OpenStateStore("paper:/x"), bad);
  EXPECT_THAT(OpenStateStore("sqlite"), bad);
}

}  // namespace
}  // namespace switchyard
