// The life of a group by NCCL, with a stand-in for the library; needs no GPU.
#include "worker/device/cuda/messages/nccl_group.h"

#include <array>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/messages/fake_nccl_library.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using testing::FailsWith;

constexpr int kRanks = 3;

class NcclGroupTest : public ::testing::Test {
 protected:
  static NcclOptions Options(Duration patience = std::chrono::seconds(10)) {
    return {.library = FAKE_NCCL, .patience = patience};
  }
  // Rank 1's, and the keys of all.
  std::unique_ptr<MessageGroup> MakeJoined(const NcclOptions& options) {
    const auto first = *MakeNcclGroup(kRanks, 0, options);
    auto group = *MakeNcclGroup(kRanks, 1, options);
    SY_EXPECT_OK(
        group->Join(std::array<std::string, kRanks>{first->key(), group->key(), "rank 2"}));
    return group;
  }
  static absl::Status Carry(MessageGroup& group) {
    cuda::Messages messages;
    messages.sent.Add(0, 0, 16);
    messages.sent.Add(2, 32, 48);
    messages.received.Add(0, 64, 80);
    std::array<std::byte, 256> memory{};
    return group.Carry(messages, memory.data(), memory.data(), nullptr);
  }

  testing::FakeNcclLibrary nccl_;
};

TEST_F(NcclGroupTest, TheFirstRanksIdReachesAllWithoutBlocking) {
  const auto group = MakeJoined(Options());

  EXPECT_EQ(nccl_->id, std::string(sizeof(ncclUniqueId), '\x5a'));
  EXPECT_EQ(nccl_->ranks, kRanks);
  EXPECT_EQ(nccl_->rank, 1);
  EXPECT_EQ(nccl_->blocking, 0);
}

TEST_F(NcclGroupTest, MessagesTravelInOneGroup) {
  const auto group = MakeJoined(Options());

  SY_EXPECT_OK(Carry(*group));

  EXPECT_EQ(nccl_->groups, 1);
  EXPECT_EQ(nccl_->looks_left, 0) << "the messages are on the stream";
  EXPECT_EQ(nccl_->parts, (std::vector<std::string>{"send 16 0", "send 48 2", "receive 80 0"}));
}

TEST_F(NcclGroupTest, TheFirstMessagesWaitUntilTheRanksHaveReachedEachOther) {
  const auto group = MakeJoined(Options());
  nccl_->state = ncclInProgress;
  auto carried = std::async(std::launch::async, [&] { return Carry(*group); });

  EXPECT_EQ(carried.wait_for(milliseconds(30)), std::future_status::timeout);
  EXPECT_TRUE(nccl_->parts.empty());
  nccl_->state = ncclSuccess;

  SY_EXPECT_OK(carried.get());
}

TEST_F(NcclGroupTest, EachCallHasItsTimeHoweverLongAfterTheJoin) {
  const auto group = MakeJoined(Options(milliseconds(50)));
  const auto later = std::chrono::steady_clock::now() + milliseconds(80);
  while (std::chrono::steady_clock::now() < later) std::this_thread::yield();

  SY_EXPECT_OK(Carry(*group));
}

// Sources and workers ask for keys of all.
TEST_F(NcclGroupTest, EachRankHasAKey) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_FALSE((*MakeNcclGroup(kRanks, rank, Options()))->key().empty()) << rank;
  }
}

TEST_F(NcclGroupTest, RanksThatDoNotReachEachOtherInTimeAreAnError) {
  const auto group = MakeJoined(Options(milliseconds(20)));
  nccl_->state = ncclInProgress;

  EXPECT_THAT(Carry(*group), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  nccl_->state = ncclSuccess;
  EXPECT_THAT(Carry(*group), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost))
      << "the others may take it for the one that failed";

  EXPECT_TRUE(nccl_->parts.empty());
}

TEST_F(NcclGroupTest, AFaultOfTheLibraryIsNamed) {
  const auto group = MakeJoined(Options());
  nccl_->ended = ncclRemoteError;

  const absl::Status carried = Carry(*group);

  EXPECT_THAT(carried, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_NE(carried.message().find("remote error"), absl::string_view::npos) << carried;
}

TEST_F(NcclGroupTest, AbortEndsAWaitAndWhatComesLater) {
  const auto group = MakeJoined(Options());
  nccl_->state = ncclInProgress;
  auto carried = std::async(std::launch::async, [&] { return Carry(*group); });
  EXPECT_EQ(carried.wait_for(milliseconds(30)), std::future_status::timeout);

  group->Abort();

  EXPECT_THAT(carried.get(), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(Carry(*group), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(nccl_->aborts, 1);
}

TEST_F(NcclGroupTest, AnAbortThatWaitsForOtherRanksHoldsNobodyForLong) {
  const auto group = MakeJoined(Options());
  nccl_->abort_hangs = true;
  const auto begin = std::chrono::steady_clock::now();

  group->Abort();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(nccl_->aborts, 1);
  nccl_->abort_hangs = false;
  while (nccl_->ended_aborts == 0) std::this_thread::yield();
}

TEST_F(NcclGroupTest, KeysThatAreNoneAreRefused) {
  const auto group = *MakeNcclGroup(2, 0, Options());
  for (const std::vector<std::string>& keys : {std::vector<std::string>{},
                                               {group->key()},
                                               {"", ""},
                                               {group->key() + "5a", "rank 1"},
                                               {std::string(256, 'x'), "rank 1"}}) {
    EXPECT_THAT(group->Join(keys),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest))
        << keys.size();
  }
  EXPECT_EQ(nccl_->ranks, 0);
}

TEST_F(NcclGroupTest, NoLibraryOrAnOldOneSaysWhatToInstall) {
  nccl_->version = NCCL_VERSION(2, 26, 5);
  for (const std::string& library : {std::string("libnone.so.2"), std::string(FAKE_NCCL)}) {
    const auto group = MakeNcclGroup(2, 0, {.library = library});
    EXPECT_THAT(group, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
    EXPECT_NE(group.status().message().find("nvidia-nccl-cu13"), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace switchyard
