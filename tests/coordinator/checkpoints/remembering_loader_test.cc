#include "coordinator/checkpoints/remembering_loader.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

class RememberingLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("sy_read_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Folder() const { return folder_.string(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  std::filesystem::path folder_;
  int reads_ = 0;
  absl::Status outcome_;
  std::function<void()> during_ = [] {};
  ModelLoader counted_ = [this](const std::string&,
                                const ManifestProgress&) -> absl::StatusOr<ModelFacts> {
    ++reads_;
    during_();
    if (!outcome_.ok()) return outcome_;
    return testing::MakeFacts({.weights = static_cast<std::uint64_t>(reads_)});
  };
};

// The shipped model's files are older than this test.
TEST_F(RememberingLoaderTest, ReadsAFolderThatStaysAsItIsOnce) {
  ASSERT_NE(CheckpointIdentity(SY_SHIPPED_MODEL), "");
  RememberingLoader read(counted_);
  RememberingLoader copy = read;
  SY_ASSERT_OK_AND_ASSIGN(const ModelFacts first, read(SY_SHIPPED_MODEL, nullptr));
  SY_ASSERT_OK_AND_ASSIGN(const ModelFacts second, copy(SY_SHIPPED_MODEL, nullptr));

  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(first, second);
}

TEST_F(RememberingLoaderTest, ReadsASyntheticModelOnce) {
  RememberingLoader read(counted_);
  const std::string a = "synthetic:seed=3,hidden=32,intermediate=16,experts=4,top_k=2,layers=2";
  const std::string b = "synthetic:seed=4,hidden=32,intermediate=16,experts=4,top_k=2,layers=2";
  for (const std::string& text : {a, b, a, b}) SY_ASSERT_OK(read(text, nullptr));
  EXPECT_EQ(reads_, 2);
}

// A second write within the resolution of the file system's clock would go unnoticed.
TEST_F(RememberingLoaderTest, DoesNotTrustAFolderThatChangedJustNow) {
  Write("model.safetensors", "1");
  EXPECT_EQ(CheckpointIdentity(Folder()), "");
  RememberingLoader read(counted_);
  SY_ASSERT_OK(read(Folder(), nullptr));
  SY_ASSERT_OK(read(Folder(), nullptr));
  EXPECT_EQ(reads_, 2);
}

// Links to files that are older than this test.
TEST_F(RememberingLoaderTest, NoticesAnotherFile) {
  const std::filesystem::path shipped = SY_SHIPPED_MODEL;
  std::filesystem::create_symlink(shipped / "config.json", folder_ / "config.json");
  const std::string before = CheckpointIdentity(Folder());
  ASSERT_NE(before, "");
  RememberingLoader read(counted_);
  SY_ASSERT_OK(read(Folder(), nullptr));

  std::filesystem::create_symlink(shipped / "README.md", folder_ / "more");
  ASSERT_TRUE(std::filesystem::exists(folder_ / "more"));

  EXPECT_NE(CheckpointIdentity(Folder()), before);
  SY_ASSERT_OK(read(Folder(), nullptr));
  EXPECT_EQ(reads_, 2);
  SY_ASSERT_OK(read(Folder(), nullptr));
  EXPECT_EQ(reads_, 2);
}

TEST_F(RememberingLoaderTest, ForgetsWhatChangedWhileItWasRead) {
  std::filesystem::create_symlink(std::filesystem::path(SY_SHIPPED_MODEL) / "config.json",
                                  folder_ / "config.json");
  during_ = [this] { Write("model.safetensors", "new"); };
  RememberingLoader read(counted_);
  SY_ASSERT_OK(read(Folder(), nullptr));
  std::filesystem::remove(folder_ / "model.safetensors");
  during_ = [] {};
  SY_ASSERT_OK(read(Folder(), nullptr));
  EXPECT_EQ(reads_, 2);
}

TEST_F(RememberingLoaderTest, RemembersNoFailure) {
  outcome_ = MakeError(absl::StatusCode::kDataLoss, Reason::kCheckpoint, "damaged");
  RememberingLoader read(counted_);
  EXPECT_FALSE(read(SY_SHIPPED_MODEL, nullptr).ok());
  outcome_ = absl::OkStatus();
  SY_EXPECT_OK(read(SY_SHIPPED_MODEL, nullptr));
  EXPECT_EQ(CheckpointIdentity("/nonexistent"), "");
  EXPECT_EQ(CheckpointIdentity(""), "");
}

TEST_F(RememberingLoaderTest, KeepsTheNewest) {
  RememberingLoader read(counted_, 2);
  const auto model = [](int seed) {
    return absl::StrCat("synthetic:seed=", seed,
                        ",hidden=32,intermediate=16,experts=4,top_k=2,layers=2");
  };
  for (const int seed : {1, 2, 3, 2, 3}) SY_ASSERT_OK(read(model(seed), nullptr));
  EXPECT_EQ(reads_, 3);
  SY_ASSERT_OK(read(model(1), nullptr));
  EXPECT_EQ(reads_, 4);
}

}  // namespace
}  // namespace switchyard
