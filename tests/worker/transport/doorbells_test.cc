#include "worker/transport/doorbells.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kSeed = 20261124;
constexpr std::uint64_t kTag = 0x0123'4567'89ab'cdefULL;

// A queue in poisoned memory, with both of its sides.
class Bells {
 public:
  explicit Bells(std::uint32_t slots)
      : memory_(BellBytes(slots) / sizeof(Line), Line{.bytes = {0xee, 0xee}}),
        bytes_(std::as_writable_bytes(std::span(memory_))),
        owner(bytes_, slots, kTag),
        peer(bytes_, slots) {}

  [[nodiscard]] BellMemory& shared() const { return *reinterpret_cast<BellMemory*>(bytes_.data()); }

 private:
  struct alignas(64) Line {
    std::array<unsigned char, 64> bytes;
  };
  std::vector<Line> memory_;
  std::span<std::byte> bytes_;

 public:
  BellOwner owner;
  BellPeer peer;
};

using Rung = BellPeer::Rung;

TEST(DoorbellsTest, GivesNumbersInTheirOrder) {
  Bells bells(8);
  EXPECT_EQ(bells.peer.tag(), kTag);
  EXPECT_FALSE(bells.owner.rung());
  EXPECT_EQ(bells.owner.Take(), std::nullopt);

  SeededRng rng(kSeed);
  std::deque<std::uint32_t> sent;
  for (int i = 0; i < 1000; ++i) {
    if (sent.size() < 8 && rng.Below(2) == 0) {
      sent.push_back(static_cast<std::uint32_t>(rng.Below(8)));
      ASSERT_NE(bells.peer.Ring(sent.back()), Rung::kRefused);
    } else if (!sent.empty()) {
      ASSERT_TRUE(bells.owner.rung());
      ASSERT_EQ(bells.owner.Take(), sent.front());
      sent.pop_front();
    }
  }
}

TEST(DoorbellsTest, AsksForAWakeOnceForEachSleep) {
  Bells bells(4);
  EXPECT_EQ(bells.peer.Ring(0), Rung::kWake) << "an owner that has not looked yet";
  EXPECT_EQ(bells.peer.Ring(1), Rung::kSeen);

  bells.owner.SetState(BellState::kAsleep);
  EXPECT_EQ(bells.peer.Ring(2), Rung::kWake);
  bells.owner.SetState(BellState::kAwake);
  EXPECT_EQ(bells.peer.Ring(3), Rung::kSeen);
}

TEST(DoorbellsTest, RefusesWhatIsMoreThanItHolds) {
  Bells bells(3);  // room for four
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_NE(bells.peer.Ring(i), Rung::kRefused);

  EXPECT_EQ(bells.peer.Ring(9), Rung::kRefused);
  EXPECT_EQ(bells.owner.Take(), 0);
  EXPECT_NE(bells.peer.Ring(4), Rung::kRefused);
  EXPECT_EQ(bells.peer.Ring(9), Rung::kRefused);
  for (std::uint32_t i = 1; i < 5; ++i) EXPECT_EQ(bells.owner.Take(), i);
  EXPECT_EQ(bells.owner.Take(), std::nullopt);
}

TEST(DoorbellsTest, RefusesAllOnceItIsClosed) {
  Bells bells(4);
  bells.owner.SetState(BellState::kClosed);

  EXPECT_EQ(bells.peer.Ring(0), Rung::kRefused);
  EXPECT_EQ(bells.shared().state.load(), static_cast<std::uint32_t>(BellState::kClosed));
  EXPECT_FALSE(bells.owner.rung());
}

TEST(DoorbellsTest, HasRoomForAsManyDoorbellsAsSlots) {
  for (const std::uint32_t slots : {1U, 2U, 3U, 8U, 1000U, 65'536U}) {
    EXPECT_EQ(BellBytes(slots) % 64, 0U) << slots;
    Bells bells(slots);
    for (std::uint32_t i = 0; i < slots; ++i) ASSERT_NE(bells.peer.Ring(i), Rung::kRefused);
    for (std::uint32_t i = 0; i < slots; ++i) ASSERT_EQ(bells.owner.Take(), i);
  }
}

// The peer can store anything here at any time.
TEST(DoorbellsTest, AnOwnerSurvivesWhateverAPeerStores) {
  SeededRng rng(kSeed);
  Bells bells(4);
  for (int round = 0; round < 10'000; ++round) {
    bells.shared().rung = static_cast<std::uint32_t>(rng.Next());
    if (rng.Below(4) == 0) bells.shared().taken = static_cast<std::uint32_t>(rng.Next());
    if (rng.Below(4) == 0) bells.shared().state = static_cast<std::uint32_t>(rng.Next());
    int taken = 0;
    while (bells.owner.Take().has_value()) ASSERT_LE(++taken, 4) << "more than the queue holds";
    EXPECT_FALSE(bells.owner.rung());
  }
  bells.owner.SetState(BellState::kAwake);
}

// And so can the owner, from where the peer stands.
TEST(DoorbellsTest, APeerSurvivesWhateverItsOwnerStores) {
  SeededRng rng(kSeed);
  Bells bells(4);
  for (int round = 0; round < 10'000; ++round) {
    bells.shared().taken = static_cast<std::uint32_t>(rng.Next());
    bells.shared().state = static_cast<std::uint32_t>(rng.Below(5));
    bells.peer.Ring(static_cast<std::uint32_t>(rng.Below(4)));
  }
}

// Sleeps as a transport does: says so, looks once more, and then waits to be woken. A number that
// neither finds would leave both threads waiting for ever.
TEST(DoorbellsTest, NoDoorbellIsLostBetweenLookingAndSleeping) {
  constexpr std::uint32_t kNumbers = 20'000;
  Bells bells(8);
  std::atomic<std::uint32_t> wakes = 0;
  std::atomic<std::uint32_t> seen = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto late = [end] { return std::chrono::steady_clock::now() > end; };
  std::jthread owner([&] {
    std::uint32_t slept = 0;
    while (seen < kNumbers && !late()) {
      bells.owner.SetState(BellState::kAwake);
      while (const auto slot = bells.owner.Take()) {
        EXPECT_EQ(*slot, seen % 8);
        ++seen;
      }
      bells.owner.SetState(BellState::kAsleep);
      if (bells.owner.rung() || seen == kNumbers) continue;
      while (wakes == slept && !late()) std::this_thread::yield();
      slept = wakes;
    }
  });

  SeededRng rng(kSeed);
  for (std::uint32_t i = 0; i < kNumbers && !late(); ++i) {
    // Few in flight, so that the owner sleeps as often as it can.
    const auto in_flight = std::min(i, static_cast<std::uint32_t>(rng.Below(8)));
    while (seen < i - in_flight && !late()) std::this_thread::yield();
    const Rung rung = bells.peer.Ring(i % 8);
    EXPECT_NE(rung, Rung::kRefused);
    if (rung == Rung::kWake) ++wakes;
  }
  owner.join();

  EXPECT_EQ(seen, kNumbers) << "a wake was lost";
}

}  // namespace
}  // namespace switchyard
