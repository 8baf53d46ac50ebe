#include "worker/transport/shared_ring.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr RingShape kShape{.slots = 3, .slot_bytes = 4096};
constexpr std::size_t kBytes = std::size_t{3} * 4096;
constexpr std::uint64_t kTag = 0x7a67'0123'4567'89abULL;

const auto kRefused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);

// The pipe that wakes an owner, without an owner that sleeps on it.
class WakePipe {
 public:
  WakePipe() {
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
  void CloseReader() { out_.reset(); }

 private:
  Descriptor out_;
  Descriptor in_;
};

// What reaches the peer of a ring: copies.
RingParts PartsOf(int file, int wake) {
  return {.file = Descriptor(::dup(file)), .wake = Descriptor(::dup(wake))};
}

class SharedRingTest : public ::testing::Test {
 protected:
  static InboundRing MakeRing(InboundRing::Kind kind = InboundRing::Kind::kMapped) {
    auto ring = InboundRing::Allocate(kind, kShape, kTag);
    SY_EXPECT_OK(ring);
    return ring.ok() ? std::move(ring).value() : InboundRing();
  }
  absl::StatusOr<PeerRing> MapOf(const InboundRing& ring, const RingShape& shape = kShape,
                                 std::uint64_t tag = kTag) const {
    return PeerRing::Map(PartsOf(ring.file(), wake_.in()), shape, tag);
  }

  WakePipe wake_;
};

TEST_F(SharedRingTest, ShowsEachSideWhatTheOtherStores) {
  SeededRng rng(4);
  InboundRing ring = MakeRing();
  const auto peer = MapOf(ring);
  SY_ASSERT_OK(peer);
  ASSERT_EQ(peer->memory().size(), kBytes);
  ASSERT_NE(peer->memory().data(), ring.memory().data());

  for (std::byte& each : peer->memory()) each = static_cast<std::byte>(1 + rng.Below(255));

  EXPECT_TRUE(std::ranges::equal(ring.memory(), peer->memory()));
  ring.memory()[kBytes - 1] = std::byte{0};
  EXPECT_EQ(peer->memory()[kBytes - 1], std::byte{0});
}

TEST_F(SharedRingTest, HasZeroedSlotsOfTheirWholeSize) {
  for (const auto kind : {InboundRing::Kind::kMapped, InboundRing::Kind::kPlain}) {
    const InboundRing ring = MakeRing(kind);

    EXPECT_EQ(ring.memory().size(), kBytes);
    EXPECT_TRUE(
        std::ranges::all_of(ring.memory(), [](std::byte each) { return each == std::byte{0}; }));
  }
}

TEST_F(SharedRingTest, WakesItsOwnerOnceForEachSleep) {
  InboundRing ring = MakeRing();
  auto peer = MapOf(ring);
  SY_ASSERT_OK(peer);
  std::ignore = wake_.Drain();

  EXPECT_TRUE(peer->Ring(2));
  EXPECT_TRUE(peer->Ring(0));
  EXPECT_EQ(wake_.Drain(), 1) << "a ring begins asleep, and the second finds it awake";
  EXPECT_EQ(ring.bells().Take(), 2);
  EXPECT_EQ(ring.bells().Take(), 0);
  ring.bells().SetState(BellState::kAsleep);
  EXPECT_TRUE(peer->Ring(1));
  EXPECT_EQ(wake_.Drain(), 1);
  ring.bells().SetState(BellState::kAwake);
  EXPECT_TRUE(peer->Ring(1));
  EXPECT_EQ(wake_.Drain(), 0);
}

TEST_F(SharedRingTest, TakesNoDoorbellsAfterItsOwnerIsGone) {
  InboundRing ring = MakeRing();
  auto peer = MapOf(ring);
  SY_ASSERT_OK(peer);
  EXPECT_TRUE(peer->Ring(1));
  std::ignore = wake_.Drain();

  ring = InboundRing();

  EXPECT_FALSE(peer->Ring(2)) << "a message must tell instead";
  EXPECT_EQ(wake_.Drain(), 0);
}

TEST_F(SharedRingTest, LetsAPeerGoOnStoringAfterTheOwnerIsGone) {
  auto ring = MakeRing();
  const auto peer = MapOf(ring);
  SY_ASSERT_OK(peer);

  ring = InboundRing();
  std::ranges::fill(peer->memory(), std::byte{0xdb});

  EXPECT_EQ(peer->memory()[kBytes / 2], std::byte{0xdb});
}

TEST_F(SharedRingTest, PlainRingsHaveNoFile) {
  const InboundRing ring = MakeRing(InboundRing::Kind::kPlain);

  EXPECT_FALSE(ring.mapped());
  EXPECT_EQ(ring.memory().size(), kBytes);
  EXPECT_EQ(ring.file(), -1);
  EXPECT_THAT(MapOf(ring), kRefused);
}

TEST_F(SharedRingTest, MovesWithItsMemory) {
  InboundRing ring = MakeRing();
  std::byte* const place = ring.memory().data();

  InboundRing moved = std::move(ring);

  EXPECT_EQ(moved.memory().data(), place);
  EXPECT_TRUE(moved.mapped());
  SY_EXPECT_OK(MapOf(moved));
}

TEST_F(SharedRingTest, RefusesOtherMemory) {
  const InboundRing ring = MakeRing();
  const auto other = InboundRing::Allocate(InboundRing::Kind::kMapped, kShape, kTag ^ 1);
  SY_ASSERT_OK(other);

  EXPECT_THAT(MapOf(ring, {.slots = 2, .slot_bytes = 4096}), kRefused) << "a part of it";
  EXPECT_THAT(MapOf(ring, {.slots = 4, .slot_bytes = 4096}), kRefused) << "more than there is";
  EXPECT_THAT(MapOf(*other), kRefused) << "another ring";
  EXPECT_THAT(MapOf(ring, kShape, kTag ^ 1), kRefused) << "another tag";
  EXPECT_THAT(PeerRing::Map({}, kShape, kTag), kRefused) << "nothing";
}

// A peer can send any descriptor. None of these is mapped, read or written.
TEST_F(SharedRingTest, RefusesDescriptorsOfOtherKinds) {
  const InboundRing ring = MakeRing();
  const std::size_t bytes = kBytes + BellBytes(kShape.slots);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Descriptor pipe_out(pipe[0]);
  const Descriptor pipe_in(pipe[1]);
  const Descriptor device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const Descriptor tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const testing::TempDir directory;
  const std::string path = directory.Write("file", std::string(bytes, '\0'));
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::mkfifo(directory.Join("fifo").c_str(), 0600), 0);
  const Descriptor fifo(::open(directory.Join("fifo").c_str(), O_RDWR | O_CLOEXEC));

  for (const int bad : {pipe_out.get(), pipe_in.get(), device.get(), tcp.get(), file.get()}) {
    EXPECT_THAT(PeerRing::Map(PartsOf(bad, wake_.in()), kShape, kTag), kRefused) << bad;
  }
  for (const int bad : {fifo.get(), device.get(), tcp.get(), datagrams.get(), ring.file()}) {
    EXPECT_THAT(PeerRing::Map(PartsOf(ring.file(), bad), kShape, kTag), kRefused) << bad;
  }
}

TEST_F(SharedRingTest, RefusesAFileThatCouldShrinkUnderTheWriter) {
  const std::size_t bytes = kBytes + BellBytes(kShape.slots);
  const Descriptor file(::memfd_create("switchyard-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(::pwrite(file.get(), &kTag, sizeof(kTag), kBytes), static_cast<ssize_t>(sizeof(kTag)));

  EXPECT_THAT(PeerRing::Map(PartsOf(file.get(), wake_.in()), kShape, kTag), kRefused);

  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  SY_EXPECT_OK(PeerRing::Map(PartsOf(file.get(), wake_.in()), kShape, kTag));
}

TEST_F(SharedRingTest, CannotBeShrunkByItsPeer) {
  const InboundRing ring = MakeRing();

  EXPECT_NE(::ftruncate(ring.file(), 0), 0);
  EXPECT_NE(::ftruncate(ring.file(), kBytes * 2), 0);
}

// A peer that does not read, that cleared O_NONBLOCK or that is gone costs the sender nothing.
TEST_F(SharedRingTest, RingingNeverBlocksAndRaisesNoSignal) {
  InboundRing ring = MakeRing();
  auto peer = MapOf(ring);
  SY_ASSERT_OK(peer);
  ASSERT_EQ(::fcntl(wake_.in(), F_SETFL, 0), 0);
  for (int i = 0; i < 100'000; ++i) {
    EXPECT_TRUE(peer->Ring(1));
    ASSERT_EQ(ring.bells().Take(), 1);
    ring.bells().SetState(BellState::kAsleep);
  }

  wake_.CloseReader();

  EXPECT_TRUE(peer->Ring(1)) << "SIGPIPE would end this test";
}

TEST_F(SharedRingTest, SaysWhenThereIsNoMemory) {
  constexpr RingShape kHuge{.slots = 1U << 31U, .slot_bytes = 1U << 31U};
  for (const auto kind : {InboundRing::Kind::kMapped, InboundRing::Kind::kPlain}) {
    EXPECT_THAT(InboundRing::Allocate(kind, kHuge, kTag),
                FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  }
}

}  // namespace
}  // namespace switchyard
