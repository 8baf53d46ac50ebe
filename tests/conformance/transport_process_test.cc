// The transport over UCX with its peers in processes of their own, as a source sees its workers:
// attaches that must always come out as asked, peers killed at any time, and what is left behind.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"
#include "tests/testing/transport_peer.h"

namespace switchyard::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyTime = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 20261122;
constexpr std::uint32_t kSlots = 4;
constexpr std::uint32_t kSlotBytes = 16 * 1024;

// System V segments that one of `processes` made.
std::size_t SegmentsOf(const std::set<pid_t>& processes) {
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::size_t found = 0;
  while (std::getline(table, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int creator = 0;  // key shmid perms size cpid ...
    if (words.size() > 4 && absl::SimpleAtoi(words[4], &creator) && processes.contains(creator)) {
      ++found;
    }
  }
  return found;
}

std::set<std::string> FilesOfSharedMemory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

class TransportProcess : public ::testing::TestWithParam<TransportCase> {
 protected:
  TransportProcess() : rng_(kSeed) {
    SystemRng system;
    auto made = MakeTransport("ucx", {.incarnation = system.NextId<Incarnation>()});
    SY_EXPECT_OK(made);
    if (made.ok()) transport_ = std::move(made).value();
    sink_.on_frame = [this](Link& link, const FrameHeader& header) {
      --in_flight_[&link];
      if (on_echo_) on_echo_(link, header);
    };
  }
  void SetUp() override { ASSERT_NE(transport_, nullptr); }

  std::unique_ptr<TransportPeer> StartPeer() {
    auto peer = TransportPeer::Start();
    EXPECT_NE(peer, nullptr);
    if (peer != nullptr) processes_.insert(peer->pid());
    return peer;
  }

  std::unique_ptr<Link> MakeLink() {
    auto link = transport_->CreateLink({.cookie = kTestCookie,
                                        .slots = kSlots,
                                        .slot_bytes = kSlotBytes,
                                        .choice = GetParam().choice});
    SY_EXPECT_OK(link);
    return link.ok() ? std::move(link).value() : nullptr;
  }

  // As a session attaches: the peer connects first. Null, and a failed test, when it cannot.
  std::unique_ptr<Link> Attach(TransportPeer& peer) {
    std::unique_ptr<Link> link = MakeLink();
    if (link == nullptr) return nullptr;
    const auto granted = peer.Attach(link->offer(), GetParam().choice);
    SY_EXPECT_OK(granted);
    if (!granted.ok()) return nullptr;
    const absl::Status connected = link->Connect(*granted);
    SY_EXPECT_OK(connected);
    if (!connected.ok()) return nullptr;
    EXPECT_EQ(link->path(), GetParam().path);
    EXPECT_EQ(link->why_messages().empty(), link->path() != LinkPath::kMessages);
    peer_of_[link.get()] = *granted;
    in_flight_[link.get()] = 0;
    return link;
  }

  void Send(Link& link, std::uint32_t slot) {
    sent_[{&link, slot}] = RandomPayload(rng_, 1 + rng_.Below(kSlotBytes - kFrameHeaderBytes));
    const auto& payload = sent_[{&link, slot}];
    const absl::Status status = SendFrame(
        link, HeaderFor(peer_of_[&link], FrameKind::kRequest, slot, payload.size()), payload);
    if (!status.ok()) {
      EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
    }
    ++in_flight_[&link];
  }

  bool PumpUntil(const std::function<bool()>& done, milliseconds limit = seconds(10)) {
    const auto end = SteadyTime::now() + limit;
    while (!done()) {
      if (SteadyTime::now() > end) return false;
      if (!transport_->Progress(sink_) && transport_->Arm()) transport_->Wait(milliseconds(5));
    }
    return true;
  }

  // One frame there and back over each of `links`.
  void ExpectEcho(const std::vector<std::unique_ptr<Link>>& links) {
    sink_.frames.clear();
    for (const auto& link : links) Send(*link, 1);
    ASSERT_TRUE(PumpUntil([&] { return sink_.frames.size() == links.size(); }));
    for (const auto& frame : sink_.frames) {
      EXPECT_TRUE(frame.payload == (sent_[{frame.link, 1}])) << "seed " << kSeed;
    }
  }

  SeededRng rng_;
  RecordingSink sink_;
  std::unique_ptr<Transport> transport_;
  std::set<pid_t> processes_;
  std::map<Link*, RingOffer> peer_of_;
  std::map<std::pair<Link*, std::uint32_t>, std::vector<std::byte>> sent_;
  std::map<Link*, int> in_flight_;
  std::function<void(Link&, const FrameHeader&)> on_echo_;
};

TEST_P(TransportProcess, AttachesAHundredTimesInARow) {
  const auto peer = StartPeer();
  for (int i = 0; i < 100; ++i) {
    std::vector<std::unique_ptr<Link>> links;
    links.push_back(Attach(*peer));
    ASSERT_NE(links[0], nullptr) << "attach " << i;
    ExpectEcho(links);
    // Either side closes first.
    if (i % 2 == 0) links.clear();
    SY_ASSERT_OK(peer->CloseAll());
  }
  EXPECT_EQ(transport_->stats().links_open, 0U);
  EXPECT_EQ(transport_->stats().ring_bytes, 0U);
  EXPECT_TRUE(peer->End());
}

TEST_P(TransportProcess, AttachesOneToFivePeersAtOnce) {
  for (std::size_t count = 1; count <= 5; ++count) {
    std::vector<std::unique_ptr<TransportPeer>> peers;
    for (std::size_t i = 0; i < count; ++i) peers.push_back(StartPeer());
    for (int round = 0; round < 4; ++round) {
      // Two sessions, as one for prefill and one for decode.
      std::vector<std::unique_ptr<Link>> links;
      for (std::size_t i = 0; i < 2 * count; ++i) {
        links.push_back(Attach(*peers[i % count]));
        ASSERT_NE(links.back(), nullptr) << "link " << i << " of " << count << " peers";
      }
      ExpectEcho(links);
      links.clear();
      for (const auto& peer : peers) SY_ASSERT_OK(peer->CloseAll());
    }
    for (const auto& peer : peers) EXPECT_TRUE(peer->End());
  }
}

TEST_P(TransportProcess, TellsAPeerKilledInTrafficAndGoesOnWithTheOther) {
  const auto survivor = StartPeer();
  for (int round = 0; round < 10; ++round) {
    const auto victim = StartPeer();
    std::vector<std::unique_ptr<Link>> stay;
    stay.push_back(Attach(*survivor));
    const std::unique_ptr<Link> goes = Attach(*victim);
    ASSERT_TRUE(stay[0] != nullptr && goes != nullptr);
    // Echoes are answered by new frames, so all slots are in flight when the peer dies.
    sink_.deaths.clear();
    int echoes = 0;
    on_echo_ = [&](Link& link, const FrameHeader& header) {
      ++echoes;
      if (sink_.deaths.empty()) Send(link, header.reply_slot);
    };
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      Send(*stay[0], slot);
      Send(*goes, slot);
    }
    const int upto = 50 + static_cast<int>(rng_.Below(100));
    ASSERT_TRUE(PumpUntil([&] { return echoes >= upto; })) << "seed " << kSeed;

    victim->Kill();

    ASSERT_TRUE(PumpUntil([&] { return !sink_.deaths.empty(); }, seconds(2))) << "round " << round;
    EXPECT_EQ(sink_.deaths[0].link, goes.get());
    on_echo_ = nullptr;
    goes->Close();
    EXPECT_EQ(transport_->stats().links_open, 1U);
    ASSERT_TRUE(PumpUntil([&] { return in_flight_[stay[0].get()] == 0; }));
    ExpectEcho(stay);
    stay.clear();
    SY_ASSERT_OK(survivor->CloseAll());
  }
  EXPECT_TRUE(survivor->End());
}

TEST_P(TransportProcess, RefusesAnOfferThatIsNotARingAndClosesCleanly) {
  if (GetParam().choice != TransportChoice::kShm) return;
  const auto peer = StartPeer();
  std::vector<std::unique_ptr<Link>> other;
  other.push_back(Attach(*peer));
  ASSERT_NE(other[0], nullptr);
  for (int i = 0; i < 50; ++i) {
    std::unique_ptr<Link> link = MakeLink();
    auto granted = peer->Attach(link->offer(), TransportChoice::kShm);
    SY_ASSERT_OK(granted);
    granted->rkey[rng_.Below(granted->rkey.size())] ^= 1;

    EXPECT_THAT(link->Connect(*granted),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));

    if (i % 2 == 0) PumpUntil([] { return false; }, milliseconds(2));
    link->Close();
    ExpectEcho(other);
  }
  EXPECT_TRUE(sink_.deaths.empty());
  EXPECT_EQ(transport_->stats().links_open, 1U);
  other.clear();
  EXPECT_TRUE(peer->End());
}

TEST_P(TransportProcess, LeavesNothingBehindWhenItEndsOrIsKilled) {
  const std::set<std::string> before = FilesOfSharedMemory();
  for (int round = 0; round < 20; ++round) {
    const auto ends = StartPeer();
    const auto killed = StartPeer();
    std::vector<std::unique_ptr<Link>> links;
    links.push_back(Attach(*ends));
    links.push_back(Attach(*killed));
    ASSERT_TRUE(links[0] != nullptr && links[1] != nullptr);
    if (round % 2 == 0) ExpectEcho(links);

    killed->Kill();
    EXPECT_TRUE(ends->End());
  }
  transport_.reset();
  processes_.insert(::getpid());

  EXPECT_EQ(SegmentsOf(processes_), 0U);
  EXPECT_EQ(FilesOfSharedMemory(), before);
}

INSTANTIATE_TEST_SUITE_P(All, TransportProcess, ::testing::Values(kUcxShmCase, kUcxTcpCase),
                         [](const ::testing::TestParamInfo<TransportCase>& param) {
                           return std::string(param.param.name);
                         });

}  // namespace
}  // namespace switchyard::testing
