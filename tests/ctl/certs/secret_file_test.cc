#include "ctl/certs/secret_file.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ReadBytes;
using switchyard::testing::TempDir;
using ::testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 0777U;
}

TEST(SecretFileTest, OnlyItsOwnerReadsASecret) {
  const TempDir dir;
  const std::string path = dir.Join("key");
  SY_ASSERT_OK(WriteFile(path, "secret", FileReaders::kOwner));
  EXPECT_EQ(ModeOf(path), 0600U);
  EXPECT_EQ(ReadBytes(path), "secret");
  // Also where another file of that name was open to all.
  SY_ASSERT_OK(WriteFile(path, "all", FileReaders::kEverybody));
  SY_ASSERT_OK(WriteFile(path, "again", FileReaders::kOwner));
  EXPECT_EQ(ModeOf(path), 0600U);
  SY_ASSERT_OK(MakeFolder(dir.Join("a/b"), FileReaders::kOwner));
  EXPECT_EQ(ModeOf(dir.Join("a/b")), 0700U);
  SY_EXPECT_OK(MakeFolder(dir.Join("a/b"), FileReaders::kEverybody));
  EXPECT_EQ(ModeOf(dir.Join("a/b")), 0700U) << "it keeps its mode";
}

// A key without its certificate is worse than neither.
TEST(SecretFileTest, ReplacesNoneOfSeveralFilesIfOneCannotBeWritten) {
  const TempDir dir;
  const std::string key = dir.Write("key", "old key");
  const std::string certificate = dir.Write("certificate", "old");
  const std::vector<NewFile> both = {{key, "new key", FileReaders::kOwner},
                                     {certificate, "new", FileReaders::kEverybody}};
  std::filesystem::create_directory(certificate + ".new");
  EXPECT_THAT(WriteFiles(both),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_EQ(ReadBytes(key), "old key");
  std::filesystem::remove(certificate + ".new");
  SY_ASSERT_OK(WriteFiles(both));
  EXPECT_EQ(ReadBytes(key), "new key");
  EXPECT_EQ(ReadBytes(certificate), "new");
  EXPECT_EQ(ModeOf(key), 0600U);
  EXPECT_EQ(ModeOf(certificate), 0644U);
}

TEST(SecretFileTest, SaysWhatItCannotWrite) {
  const TempDir dir;
  const auto refused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig);
  const std::string file = dir.Write("file", "x");
  const absl::Status status = WriteFile(file + "/below", "x", FileReaders::kOwner);
  EXPECT_THAT(status, refused);
  EXPECT_THAT(std::string(status.message()), HasSubstr(file + "/below"));
  EXPECT_THAT(MakeFolder(file, FileReaders::kOwner), refused);
}

}  // namespace
}  // namespace switchyard::ctl
