#include "quantize/output_folder.h"

#include <fcntl.h>
#include <filesystem>
#include <string>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadBytes;
using testing::TempDir;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

TEST(OutputFolderTest, AppearsUnderItsNameOnCommitOnly) {
  const TempDir dir;
  const std::string out = dir.Join("out");
  SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(out + "/", false));
  SY_ASSERT_OK(folder->WriteFile("config.json", "{}"));

  EXPECT_FALSE(fs::exists(out));
  EXPECT_TRUE(fs::exists(folder->partial()));
  SY_ASSERT_OK(folder->Commit());

  EXPECT_EQ(ReadBytes(out + "/config.json"), "{}");
  EXPECT_FALSE(fs::exists(folder->partial()));
}

TEST(OutputFolderTest, WithoutCommitNothingStays) {
  const TempDir dir;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(dir.Join("out"), false));
    SY_ASSERT_OK(folder->WriteFile("config.json", "{}"));
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(OutputFolderTest, AnExistingFolderIsReplacedOnlyOnRequest) {
  const TempDir dir;
  const std::string out = dir.Join("out");
  fs::create_directory(out);
  dir.Write("out/config.json", "old");
  dir.Write("out/extra.txt", "old");

  EXPECT_THAT(OutputFolder::Create(out, false), FailsWith(kRefused, Reason::kBadConfig));
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(out, true));
    SY_ASSERT_OK(folder->WriteFile("config.json", "lost"));
  }
  EXPECT_EQ(ReadBytes(out + "/config.json"), "old");
  SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(out, true));
  SY_ASSERT_OK(folder->WriteFile("config.json", "new"));
  EXPECT_EQ(ReadBytes(out + "/config.json"), "old");
  SY_ASSERT_OK(folder->Commit());

  EXPECT_EQ(ReadBytes(out + "/config.json"), "new");
  EXPECT_FALSE(fs::exists(out + "/extra.txt"));
  EXPECT_FALSE(fs::exists(folder->partial()));
}

TEST(OutputFolderTest, WhatIsNoCheckpointIsNeverReplaced) {
  const TempDir dir;
  fs::create_directories(dir.Join("home/photos"));
  dir.Write("home/config.json", "{}");
  fs::create_directory(dir.Join("plain"));
  dir.Write("plain/letter.txt", "dear");
  dir.Write("file", "text");
  fs::create_directory_symlink(dir.Join("plain"), dir.Join("link"));

  for (const char* name : {"home", "plain", "file", "link"}) {
    EXPECT_THAT(OutputFolder::Create(dir.Join(name), true), FailsWith(kRefused, Reason::kBadConfig))
        << name;
  }
}

TEST(OutputFolderTest, AFolderThatAppearsMeanwhileIsKept) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(dir.Join("out"), false));
  fs::create_directory(dir.Join("out"));
  dir.Write("out/theirs.txt", "theirs");

  EXPECT_THAT(folder->Commit(), FailsWith(kRefused, Reason::kBadConfig));
  EXPECT_EQ(ReadBytes(dir.Join("out/theirs.txt")), "theirs");
}

TEST(OutputFolderTest, APartialFolderOfAKilledRunIsNamedAndKept) {
  const TempDir dir;
  const std::string partial = absl::StrCat("out.partial-", getpid());
  fs::create_directory(dir.Join(partial));
  dir.Write(partial + "/theirs.txt", "theirs");

  const absl::Status status = OutputFolder::Create(dir.Join("out"), false).status();

  EXPECT_THAT(status, FailsWith(kRefused, Reason::kBadConfig));
  EXPECT_THAT(std::string(status.message()), HasSubstr(partial));
  EXPECT_EQ(ReadBytes(dir.Join(partial + "/theirs.txt")), "theirs");
}

TEST(OutputFolderTest, AFullDiskSaysSo) {
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  const std::string bytes = "some bytes";

  const absl::Status status =
      WriteAt(full, "model.safetensors", 0, std::as_bytes(std::span<const char>(bytes)));

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kCheckpoint));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the disk is full"));
  EXPECT_EQ(MetadataOf(status)["file"], "model.safetensors");
}

TEST(OutputFolderTest, FilesAndFoldersThatCannotBeMadeAreNamed) {
  const TempDir dir;
  const absl::Status missing = OutputFolder::Create(dir.Join("no/such/out"), false).status();
  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(missing)["file"], dir.Join("no/such"));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr(absl::StrCat(dir.Join("no/such"), " does not exist; create it")));
  EXPECT_THAT(std::string(missing.message()), Not(HasSubstr(".partial")));
  dir.Write("file", "text");
  const absl::Status no_folder = OutputFolder::Create(dir.Join("file/out"), false).status();
  EXPECT_EQ(MetadataOf(no_folder)["file"], dir.Join("file"));
  SY_ASSERT_OK_AND_ASSIGN(const auto folder, OutputFolder::Create(dir.Join("out"), false));
  SY_ASSERT_OK(folder->WriteFile("a", "1"));
  EXPECT_THAT(folder->WriteFile("a", "2"),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
