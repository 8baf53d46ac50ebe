#include "model/io/file_descriptor.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using testing::TempDir;

TEST(FileDescriptorTest, ReadsRangesAndTheWhole) {
  const TempDir dir;
  const std::string text = "0123456789";
  const std::string path = dir.Write("f", text);
  SY_ASSERT_OK_AND_ASSIGN(const FileDescriptor file, OpenRegularFile(path));

  SY_ASSERT_OK_AND_ASSIGN(const std::uint64_t size, SizeOf(file, path));
  SY_ASSERT_OK_AND_ASSIGN(const std::string whole, ReadWhole(file, path, 10));
  std::string part(4, '?');
  SY_ASSERT_OK(ReadAt(file, path, 3, std::as_writable_bytes(std::span(part))));

  EXPECT_EQ(size, 10U);
  EXPECT_EQ(whole, text);
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(MetadataOf(ReadWhole(file, path, 9).status())["kind"], "HEADER_TOO_LARGE");
}

TEST(FileDescriptorTest, ReadingBehindTheEndNamesTheByte) {
  const TempDir dir;
  const std::string path = dir.Write("f", "0123456789");
  SY_ASSERT_OK_AND_ASSIGN(const FileDescriptor file, OpenRegularFile(path));
  std::string part(4, '?');

  const absl::Status status = ReadAt(file, path, 8, std::as_writable_bytes(std::span(part)));

  EXPECT_THAT(status, FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(status)["offset"], "10");
  EXPECT_EQ(MetadataOf(status)["kind"], "IO_ERROR");
}

TEST(FileDescriptorTest, AReadThatTheSystemRefusesIsAnIoError) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(const FileDescriptor folder, OpenFolder(dir.path()));
  std::string part(4, '?');

  EXPECT_THAT(ReadAt(folder, dir.path(), 0, std::as_writable_bytes(std::span(part))),
              FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_THAT(SizeOf(FileDescriptor(), "closed"),
              FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint));
}

TEST(FileDescriptorTest, OpensOnlyRegularFiles) {
  const TempDir dir;
  dir.Write("file", "x");
  std::filesystem::create_directory(dir.Join("folder"));
  ASSERT_EQ(mkfifo(dir.Join("pipe").c_str(), 0600), 0);
  const auto irregular = FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint);

  EXPECT_THAT(OpenRegularFile(dir.Join("folder")), irregular);
  EXPECT_THAT(OpenRegularFile(dir.Join("pipe")), irregular);
  EXPECT_THAT(OpenRegularFile(dir.Join("none")),
              FailsWith(StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(OpenFolder(dir.Join("file")), irregular);
}

TEST(FileDescriptorTest, AFileInAFolderIsNotFollowedOutOfIt) {
  const TempDir dir;
  const TempDir other;
  other.Write("secret", "x");
  dir.Write("file", "x");
  std::filesystem::create_symlink(other.Join("secret"), dir.Join("link"));
  SY_ASSERT_OK_AND_ASSIGN(const FileDescriptor folder, OpenFolder(dir.path()));

  SY_EXPECT_OK(OpenRegularFileIn(folder, "file", dir.Join("file")));
  const absl::Status status = OpenRegularFileIn(folder, "link", dir.Join("link")).status();
  EXPECT_THAT(status, FailsWith(StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(status)["kind"], "NOT_A_REGULAR_FILE");
  EXPECT_NE(status.message().find("symbolic link"), absl::string_view::npos);
}

}  // namespace
}  // namespace switchyard
