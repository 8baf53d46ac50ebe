#include "model/safetensors/safetensors.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FileOf;
using testing::SafetensorsBytes;
using testing::TempDir;
using testing::WrittenTensor;

std::string RandomBytes(SeededRng& rng, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.Next());
  return bytes;
}

// Tensors of several dtypes and ranks, some of size 0, none of them aligned.
std::vector<WrittenTensor> MixedTensors(std::uint64_t seed) {
  SeededRng rng(seed);
  return {{"zebra", "I8", {3}, RandomBytes(rng, 3)},
          {"empty", "F32", {4, 0}, ""},
          {"apple", "F32", {2, 3}, RandomBytes(rng, 24)},
          {"scalar", "F64", {}, RandomBytes(rng, 8)},
          {"nibbles", "F4", {2, 5}, RandomBytes(rng, 5)},
          {"last", "BF16", {1, 1, 7}, RandomBytes(rng, 14)},
          {"nothing", "U8", {0}, ""}};
}

std::string ReadText(const SafetensorsFile& file, const TensorInfo& tensor) {
  std::string out(tensor.bytes, '?');
  const absl::Status status = file.Read(tensor, std::as_writable_bytes(std::span(out)));
  return status.ok() ? out : status.ToString();
}

TEST(SafetensorsTest, ReadsBackWhatWasWritten) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = MixedTensors(31);
  SY_ASSERT_OK_AND_ASSIGN(const auto file,
                          SafetensorsFile::Open(dir.Write("m", SafetensorsBytes(written))));

  EXPECT_EQ(file->tensors().size(), written.size());
  EXPECT_EQ(file->path(), dir.Join("m"));
  for (const WrittenTensor& one : written) {
    const TensorInfo* tensor = file->Find(one.name);
    ASSERT_NE(tensor, nullptr) << one.name;
    EXPECT_EQ(TensorDtypeName(tensor->dtype), one.dtype);
    EXPECT_EQ(tensor->shape, one.shape);
    EXPECT_EQ(ReadText(*file, *tensor), one.bytes);
  }
  for (const char* name : {"", "appl", "apples", "zzz", "Apple"}) {
    EXPECT_EQ(file->Find(name), nullptr) << name;
  }
}

TEST(SafetensorsTest, ReadsEveryRangeAndNoOther) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = MixedTensors(32);
  SY_ASSERT_OK_AND_ASSIGN(const auto file,
                          SafetensorsFile::Open(dir.Write("m", SafetensorsBytes(written))));
  const TensorInfo& tensor = *file->Find("apple");

  for (std::size_t from = 0; from <= 24; ++from) {
    for (std::size_t count = 0; count <= 24 - from; ++count) {
      std::string out(count, '?');
      SY_ASSERT_OK(file->ReadRange(tensor, from, std::as_writable_bytes(std::span(out))));
      ASSERT_EQ(out, written[2].bytes.substr(from, count));
    }
  }

  std::vector<std::byte> out(25);
  const auto fails = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kCheckpoint);
  EXPECT_THAT(file->Read(tensor, out), fails);
  EXPECT_THAT(file->Read(tensor, std::span(out).first(23)), fails);
  EXPECT_THAT(file->ReadRange(tensor, 0, out), fails);
  EXPECT_THAT(file->ReadRange(tensor, 24, std::span(out).first(1)), fails);
  EXPECT_THAT(file->ReadRange(tensor, UINT64_MAX, std::span(out).first(2)), fails);
}

TEST(SafetensorsTest, ReadsFromThreadsSideBySide) {
  const TempDir dir;
  SeededRng rng(33);
  std::vector<WrittenTensor> written;
  for (int i = 0; i < 8; ++i) {
    written.push_back({absl::StrCat("t", i), "U8", {5'000}, RandomBytes(rng, 5'000)});
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto file,
                          SafetensorsFile::Open(dir.Write("m", SafetensorsBytes(written))));

  std::vector<int> wrong(8, 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        if (ReadText(*file, *file->Find(written[i].name)) != written[i].bytes) ++wrong[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(SafetensorsTest, RefusesAFileCutAtAnyByteAndOneWithMore) {
  const TempDir dir;
  const std::string whole = SafetensorsBytes(MixedTensors(34));
  const std::string path = dir.Write("m", whole + "x");
  EXPECT_THAT(SafetensorsFile::Open(path),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));

  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    ASSERT_THAT(SafetensorsFile::Open(path),
                FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint))
        << "cut to " << size;
  }
}

TEST(SafetensorsTest, SurvivesRandomDamage) {
  const TempDir dir;
  const std::string whole = SafetensorsBytes(MixedTensors(35));
  constexpr std::uint64_t kSeed = 99;
  SeededRng rng(kSeed);
  for (int round = 0; round < 1'000; ++round) {
    std::string damaged = whole;
    const std::uint64_t edits = 1 + rng.Below(3);
    for (std::uint64_t edit = 0; edit < edits; ++edit) {
      damaged[rng.Below(damaged.size())] ^= static_cast<char>(1 + rng.Below(255));
    }
    const auto file = SafetensorsFile::Open(dir.Write("m", damaged));
    if (!file.ok()) {
      ASSERT_THAT(file, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint))
          << "seed " << kSeed << " round " << round;
      continue;
    }
    // A file that opens can be read to the last byte.
    for (const TensorInfo& tensor : (*file)->tensors()) {
      std::vector<std::byte> out(tensor.bytes);
      ASSERT_TRUE((*file)->Read(tensor, out).ok()) << "seed " << kSeed << " round " << round;
    }
  }
}

TEST(SafetensorsTest, FollowsASymbolicLinkThatTheCallerNames) {
  const TempDir dir;
  dir.Write("real", SafetensorsBytes(MixedTensors(36)));
  std::filesystem::create_symlink("real", dir.Join("link"));

  SY_EXPECT_OK(SafetensorsFile::Open(dir.Join("link")));
}

TEST(SafetensorsTest, RefusesWhatIsNoFile) {
  const TempDir dir;

  EXPECT_THAT(SafetensorsFile::Open(dir.path()),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_THAT(SafetensorsFile::Open(dir.Join("none")),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
