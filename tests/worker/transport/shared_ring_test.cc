#include "worker/transport/shared_ring.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "worker/transport/sealed_blob.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr RingShape kShape{.slots = 3, .slot_bytes = 4096};
constexpr std::size_t kBytes = std::size_t{3} * 4096;
constexpr std::uint64_t kTag = 0x7a67'0123'4567'89abULL;

const auto kRefused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);

// The owner's pipe, without an owner that sleeps on it.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    out_.reset(ends[0]);
    in_.reset(ends[1]);
  }
  [[nodiscard]] int in() const { return in_.get(); }
  // How many bytes were written since the last call.
  [[nodiscard]] ssize_t Drain() const {
    std::array<std::byte, 64> bytes{};
    return std::max<ssize_t>(::read(out_.get(), bytes.data(), bytes.size()), 0);
  }

 private:
  Descriptor out_;
  Descriptor in_;
};

const Pipe& ThePipe() {
  static const Pipe pipe;
  return pipe;
}

InboundRing MakeRing(InboundRing::Kind kind = InboundRing::Kind::kMapped) {
  auto ring = InboundRing::Allocate(kind, kShape, kTag, ThePipe().in());
  SY_EXPECT_OK(ring);
  return ring.ok() ? std::move(ring).value() : InboundRing();
}

// The fields of a key, in order.
struct Place {
  std::int32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t inode = 0;
};
struct Key {
  std::uint64_t tag = 0;
  Place file;
  Place wake_pipe;
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
  const auto peer = PeerRing::Map(ring.key(), kShape);
  SY_ASSERT_OK(peer);
  ASSERT_EQ(peer->memory().size(), kBytes);
  ASSERT_NE(peer->memory().data(), ring.memory().data());

  for (std::byte& each : peer->memory()) each = static_cast<std::byte>(1 + rng.Below(255));

  EXPECT_TRUE(std::ranges::equal(ring.memory(), peer->memory()));
  ring.memory()[kBytes - 1] = std::byte{0};
  EXPECT_EQ(peer->memory()[kBytes - 1], std::byte{0});
}

TEST(SharedRingTest, HasZeroedSlotsOfTheirWholeSize) {
  for (const auto kind : {InboundRing::Kind::kMapped, InboundRing::Kind::kPlain}) {
    const InboundRing ring = MakeRing(kind);

    EXPECT_EQ(ring.memory().size(), kBytes);
    EXPECT_TRUE(
        std::ranges::all_of(ring.memory(), [](std::byte each) { return each == std::byte{0}; }));
  }
}

TEST(SharedRingTest, WakesItsOwnerOnceForEachSleep) {
  InboundRing ring = MakeRing();
  auto peer = PeerRing::Map(ring.key(), kShape);
  SY_ASSERT_OK(peer);
  std::ignore = ThePipe().Drain();

  EXPECT_TRUE(peer->Ring(2));
  EXPECT_TRUE(peer->Ring(0));
  EXPECT_EQ(ThePipe().Drain(), 1) << "a ring begins asleep, and the second finds it awake";
  EXPECT_EQ(ring.bells().Take(), 2);
  EXPECT_EQ(ring.bells().Take(), 0);
  ring.bells().SetState(BellState::kAsleep);
  EXPECT_TRUE(peer->Ring(1));
  EXPECT_EQ(ThePipe().Drain(), 1);
  ring.bells().SetState(BellState::kAwake);
  EXPECT_TRUE(peer->Ring(1));
  EXPECT_EQ(ThePipe().Drain(), 0);
}

TEST(SharedRingTest, TakesNoDoorbellsAfterItsOwnerIsGone) {
  InboundRing ring = MakeRing();
  auto peer = PeerRing::Map(ring.key(), kShape);
  SY_ASSERT_OK(peer);
  EXPECT_TRUE(peer->Ring(1));
  std::ignore = ThePipe().Drain();

  ring = InboundRing();

  EXPECT_FALSE(peer->Ring(2)) << "a message must tell instead";
  EXPECT_EQ(ThePipe().Drain(), 0);
}

TEST(SharedRingTest, LetsAPeerGoOnStoringAfterTheOwnerIsGone) {
  auto ring = MakeRing();
  const auto peer = PeerRing::Map(ring.key(), kShape);
  SY_ASSERT_OK(peer);
  const std::string key = ring.key();

  ring = InboundRing();
  std::ranges::fill(peer->memory(), std::byte{0xdb});

  EXPECT_EQ(peer->memory()[kBytes / 2], std::byte{0xdb});
  EXPECT_THAT(PeerRing::Map(key, kShape), kRefused);
}

TEST(SharedRingTest, PlainRingsHaveNoKey) {
  const InboundRing ring = MakeRing(InboundRing::Kind::kPlain);

  EXPECT_FALSE(ring.mapped());
  EXPECT_EQ(ring.memory().size(), kBytes);
  EXPECT_EQ(ring.key(), "");
  EXPECT_THAT(PeerRing::Map(ring.key(), kShape), kRefused);
}

TEST(SharedRingTest, MovesWithItsMemory) {
  InboundRing ring = MakeRing();
  std::byte* const place = ring.memory().data();

  InboundRing moved = std::move(ring);

  EXPECT_EQ(moved.memory().data(), place);
  EXPECT_TRUE(moved.mapped());
  SY_EXPECT_OK(PeerRing::Map(moved.key(), kShape));
}

TEST(SharedRingTest, RefusesKeysOfOtherMemory) {
  const InboundRing ring = MakeRing();
  const InboundRing other = MakeRing();
  const Key good = OpenKey(ring.key());

  EXPECT_THAT(PeerRing::Map(ring.key(), {.slots = 2, .slot_bytes = 4096}), kRefused)
      << "a part of it";
  EXPECT_THAT(PeerRing::Map(ring.key(), {.slots = 4, .slot_bytes = 4096}), kRefused)
      << "more than there is";
  Key key = good;
  key.tag ^= 1;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "another tag";
  key = good;
  key.file.inode += 1;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "another file number";
  key = good;
  key.file.descriptor = OpenKey(other.key()).file.descriptor;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "another ring's descriptor";
  key = good;
  key.file.process = 0x7fff'fff0;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "a process that is not there";
  key = good;
  key.wake_pipe.inode += 1;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "another pipe";
  key = good;
  key.wake_pipe.descriptor = good.file.descriptor;
  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused) << "a pipe that is none";
  std::string damaged = ring.key();
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_THAT(PeerRing::Map(damaged, kShape), kRefused) << "damaged on the way";
  EXPECT_THAT(PeerRing::Map(ring.key().substr(0, 20), kShape), kRefused) << "cut on the way";
}

// Opening what is no ring must not happen: a FIFO would see a reader come, a device might act.
TEST(SharedRingTest, DoesNotOpenAFileThatIsNoRing) {
  const Pipe pipe;
  const InboundRing ring = MakeRing();
  Key key = OpenKey(ring.key());
  key.file.descriptor = pipe.in();

  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused);
}

TEST(SharedRingTest, RefusesAFileThatCouldShrinkUnderTheWriter) {
  const std::size_t bytes = kBytes + BellBytes(kShape.slots);
  Descriptor file(::memfd_create("switchyard-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(::pwrite(file.get(), &kTag, sizeof(kTag), kBytes), static_cast<ssize_t>(sizeof(kTag)));
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  const InboundRing good = MakeRing();
  Key key = OpenKey(good.key());
  key.file.inode = status.st_ino;
  key.file.descriptor = file.get();

  EXPECT_THAT(PeerRing::Map(SealKey(key), kShape), kRefused);

  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  SY_EXPECT_OK(PeerRing::Map(SealKey(key), kShape));
}

TEST(SharedRingTest, CannotBeShrunkByItsPeer) {
  const InboundRing ring = MakeRing();
  const Key key = OpenKey(ring.key());

  EXPECT_NE(::ftruncate(key.file.descriptor, 0), 0);
  EXPECT_NE(::ftruncate(key.file.descriptor, kBytes * 2), 0);
}

TEST(SharedRingTest, SaysWhenThereIsNoMemory) {
  constexpr RingShape kHuge{.slots = 1U << 31U, .slot_bytes = 1U << 31U};
  for (const auto kind : {InboundRing::Kind::kMapped, InboundRing::Kind::kPlain}) {
    EXPECT_THAT(InboundRing::Allocate(kind, kHuge, kTag, ThePipe().in()),
                FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  }
}

}  // namespace
}  // namespace switchyard
