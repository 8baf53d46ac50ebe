#include "worker/transport/shared_ring.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "worker/transport/sealed_blob.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr std::size_t kBytes = 3 * 4096;
constexpr std::uint64_t kTag = 0x7a67'0123'4567'89abULL;

const auto kRefused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);

InboundRing MakeRing(InboundRing::Kind kind = InboundRing::Kind::kMapped) {
  auto ring = InboundRing::Allocate(kind, kBytes, kTag);
  SY_EXPECT_OK(ring);
  return ring.ok() ? std::move(ring).value() : InboundRing();
}

// The fields of a key, in order.
struct Key {
  std::uint64_t tag = 0;
  std::uint64_t inode = 0;
  std::int32_t process = 0;
  std::int32_t file = 0;
};
Key OpenKey(const std::string& sealed) {
  Key key;
  const auto blob = OpenBlob(BlobKind::kRingKey, sealed);
  EXPECT_TRUE(blob.has_value() && blob->size() == sizeof(key));
  std::memcpy(&key, blob->data(), sizeof(key));
  return key;
}
std::string SealKey(const Key& key) {
  return SealBlob(BlobKind::kRingKey, {reinterpret_cast<const char*>(&key), sizeof(key)});
}

TEST(SharedRingTest, ShowsEachSideWhatTheOtherStores) {
  SeededRng rng(4);
  InboundRing ring = MakeRing();
  const auto peer = PeerRing::Map(ring.key(), kBytes);
  SY_ASSERT_OK(peer);
  ASSERT_EQ(peer->memory().size(), kBytes);
  ASSERT_NE(peer->memory().data(), ring.memory().data());

  for (std::byte& each : peer->memory()) each = static_cast<std::byte>(1 + rng.Below(255));

  EXPECT_TRUE(std::ranges::equal(ring.memory(), peer->memory()));
  ring.memory()[kBytes - 1] = std::byte{0};
  EXPECT_EQ(peer->memory()[kBytes - 1], std::byte{0});
}

TEST(SharedRingTest, IsZeroedBehindItsTag) {
  const InboundRing ring = MakeRing();

  EXPECT_EQ(std::memcmp(ring.memory().data(), &kTag, sizeof(kTag)), 0);
  EXPECT_TRUE(std::ranges::all_of(ring.memory().subspan(sizeof(kTag)),
                                  [](std::byte each) { return each == std::byte{0}; }));
}

TEST(SharedRingTest, LetsAPeerGoOnStoringAfterTheOwnerIsGone) {
  auto ring = MakeRing();
  const auto peer = PeerRing::Map(ring.key(), kBytes);
  SY_ASSERT_OK(peer);
  const std::string key = ring.key();

  ring = InboundRing();
  std::ranges::fill(peer->memory(), std::byte{0xdb});

  EXPECT_EQ(peer->memory()[kBytes / 2], std::byte{0xdb});
  EXPECT_THAT(PeerRing::Map(key, kBytes), kRefused);
}

TEST(SharedRingTest, PlainRingsHaveNoKey) {
  const InboundRing ring = MakeRing(InboundRing::Kind::kPlain);

  EXPECT_FALSE(ring.mapped());
  EXPECT_EQ(ring.memory().size(), kBytes);
  EXPECT_EQ(ring.key(), "");
  EXPECT_THAT(PeerRing::Map(ring.key(), kBytes), kRefused);
}

TEST(SharedRingTest, MovesWithItsMemory) {
  InboundRing ring = MakeRing();
  std::byte* const place = ring.memory().data();

  InboundRing moved = std::move(ring);

  EXPECT_EQ(moved.memory().data(), place);
  EXPECT_TRUE(moved.mapped());
  SY_EXPECT_OK(PeerRing::Map(moved.key(), kBytes));
}

TEST(SharedRingTest, RefusesKeysOfOtherMemory) {
  const InboundRing ring = MakeRing();
  const InboundRing other = MakeRing();
  const Key good = OpenKey(ring.key());

  EXPECT_THAT(PeerRing::Map(ring.key(), kBytes - 4096), kRefused) << "a part of it";
  EXPECT_THAT(PeerRing::Map(ring.key(), kBytes + 4096), kRefused) << "more than there is";
  Key key = good;
  key.tag ^= 1;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused) << "another tag";
  key = good;
  key.inode += 1;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused) << "another file number";
  key = good;
  key.file = OpenKey(other.key()).file;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused) << "another ring's descriptor";
  key = good;
  key.process = 0x7fff'fff0;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused) << "a process that is not there";
  std::string damaged = ring.key();
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_THAT(PeerRing::Map(damaged, kBytes), kRefused) << "damaged on the way";
  EXPECT_THAT(PeerRing::Map(ring.key().substr(0, 20), kBytes), kRefused) << "cut on the way";
}

// Opening what is no ring must not happen: a FIFO would see a reader come, a device might act.
TEST(SharedRingTest, DoesNotOpenAFileThatIsNoRing) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const InboundRing ring = MakeRing();
  Key key = OpenKey(ring.key());
  key.file = pipe[0];

  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused);

  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(SharedRingTest, RefusesAFileThatCouldShrinkUnderTheWriter) {
  RingFile file(::memfd_create("switchyard-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  ASSERT_EQ(::pwrite(file.get(), &kTag, sizeof(kTag), 0), static_cast<ssize_t>(sizeof(kTag)));
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  const Key key{kTag, status.st_ino, static_cast<std::int32_t>(::getpid()), file.get()};

  EXPECT_THAT(PeerRing::Map(SealKey(key), kBytes), kRefused);

  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  SY_EXPECT_OK(PeerRing::Map(SealKey(key), kBytes));
}

TEST(SharedRingTest, CannotBeShrunkByItsPeer) {
  const InboundRing ring = MakeRing();
  const Key key = OpenKey(ring.key());

  EXPECT_NE(::ftruncate(key.file, 0), 0);
  EXPECT_NE(::ftruncate(key.file, kBytes * 2), 0);
}

TEST(SharedRingTest, SaysWhenThereIsNoMemory) {
  EXPECT_THAT(InboundRing::Allocate(InboundRing::Kind::kMapped, std::size_t{1} << 62, kTag),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_THAT(InboundRing::Allocate(InboundRing::Kind::kPlain, std::size_t{1} << 62, kTag),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

}  // namespace
}  // namespace switchyard
