#include "worker/device/host/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/rng.h"
#include "tests/testing/child_process.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::InChild;

constexpr std::size_t kBytes = 10'000;

// A key's fields, as far as tests forge them: the process at byte 4, its descriptor at byte 8.
std::string WithFile(std::string key, int file) {
  std::memcpy(&key[8], &file, sizeof file);
  return key;
}

auto OutOfReach() { return FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported); }

TEST(SharedMemoryTest, AnotherProcessReadsAndWritesIt) {
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer shared, AllocateHostShared(kBytes));
  std::byte* const own = shared.buffer->data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own) % 64, 0U);
  EXPECT_EQ(shared.buffer->bytes(), kBytes);
  EXPECT_TRUE(std::all_of(own, own + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  own[kBytes - 1] = std::byte{17};

  const std::string seen = InChild([&shared] {
    auto opened = OpenHostShared(shared.key, kBytes);
    if (!opened.ok()) return std::string(opened.status().message());
    std::string last = std::to_string(std::to_integer<int>((*opened)->data()[kBytes - 1]));
    (*opened)->data()[0] = std::byte{42};
    return last;
  });

  EXPECT_EQ(seen, "17");
  EXPECT_EQ(own[0], std::byte{42});
}

TEST(SharedMemoryTest, PagesStayForThoseThatHaveThem) {
  SY_ASSERT_OK_AND_ASSIGN(SharedBuffer shared, AllocateHostShared(kBytes));
  SY_ASSERT_OK_AND_ASSIGN(const auto opened, OpenHostShared(shared.key, 100));
  std::memset(shared.buffer->data(), 9, kBytes);
  const std::string key = shared.key;

  shared.buffer.reset();

  EXPECT_EQ(opened->bytes(), 100U);
  EXPECT_EQ(opened->data()[99], std::byte{9});
  EXPECT_THAT(OpenHostShared(key, 1).status(), OutOfReach()) << "nobody finds it anew";
}

TEST(SharedMemoryTest, KeysThatAreNoneAreRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const SharedBuffer shared, AllocateHostShared(kBytes));
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);
  for (const std::string& key :
       {std::string(), std::string("key"), shared.key.substr(1), shared.key + "x",
        std::string(shared.key.size(), '\0'), std::string(shared.key.size(), '\xff')}) {
    EXPECT_THAT(OpenHostShared(key, 1).status(), bad);
  }
  EXPECT_THAT(OpenHostShared(shared.key, kBytes + 1).status(), bad) << "of less memory";
  EXPECT_THAT(OpenHostShared(shared.key, SIZE_MAX).status(), bad);
  EXPECT_THAT(OpenHostShared(shared.key, SIZE_MAX - 32).status(), bad);
  SY_EXPECT_OK(OpenHostShared(shared.key, kBytes).status());
}

// Whatever a forged key names: nothing is opened that is not such memory, and nothing is waited
// for.
TEST(SharedMemoryTest, KeysOfOtherFilesAreRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const SharedBuffer shared, AllocateHostShared(kBytes));
  SY_ASSERT_OK_AND_ASSIGN(const SharedBuffer other, AllocateHostShared(kBytes));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, kBytes), 0);
  const int empty = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(empty, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const int plain = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int folder = open("/", O_RDONLY | O_CLOEXEC);
  const int device = open("/dev/zero", O_RDWR | O_CLOEXEC);
  int other_file = 0;
  std::memcpy(&other_file, &other.key[8], sizeof other_file);

  for (const int file :
       {ends[0], ends[1], unsealed, empty, plain, folder, device, other_file, 987'654}) {
    EXPECT_THAT(OpenHostShared(WithFile(shared.key, file), 1).status(), OutOfReach()) << file;
  }

  for (const int file : {ends[0], ends[1], unsealed, empty, plain, folder, device}) close(file);
}

TEST(SharedMemoryTest, RandomKeysAreRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const SharedBuffer shared, AllocateHostShared(kBytes));
  SeededRng rng(3);
  for (int i = 0; i < 2'000; ++i) {
    std::string key = shared.key;
    // Behind the magic: process, file or tag.
    const std::size_t at = 4 + rng.Below(key.size() - 4);
    if (at >= 12 && at < 16) continue;  // reserved
    key[at] = static_cast<char>(key[at] ^ static_cast<char>(1 + rng.Below(255)));
    EXPECT_FALSE(OpenHostShared(key, 1).ok());
  }
}

TEST(SharedMemoryTest, MoreThanThereIsIsRefusedByItsSize) {
  const auto none = FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory);
  EXPECT_THAT(AllocateHostShared(SIZE_MAX).status(), none);
  EXPECT_THAT(AllocateHostShared(std::size_t{1} << 45).status(), none);
}

}  // namespace
}  // namespace switchyard
