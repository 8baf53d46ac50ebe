// What becomes of a step whose messages cannot be carried, with a stand-in for NCCL; needs no GPU.
#include "worker/device/cuda/messages/message_carrier.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/device/cuda/messages/fake_nccl_library.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

class MessageCarrierTest : public ::testing::Test {
 protected:
  std::unique_ptr<MessageCarrier> MakeJoined(int ranks) {
    const NcclOptions options{.library = FAKE_NCCL};
    const auto first = *MessageCarrier::Create(ranks, 0, 0, options);
    std::vector<std::string> keys{first->key()};
    for (int r = 1; r < ranks; ++r) keys.push_back("rank " + std::to_string(r));
    auto carrier = *MessageCarrier::Create(ranks, ranks - 1, 0, options);
    SY_EXPECT_OK(carrier->Join(keys, std::chrono::seconds(10), &report_));
    return carrier;
  }
  void Carry(MessageCarrier& carrier) {
    cuda::Messages messages;
    messages.sent.Add(0, 0, 16);
    carrier.Carry(messages, memory_.data(), memory_.data(), nullptr);
  }
  std::uint32_t gone() { return std::atomic_ref<std::uint32_t>(report_.gone).load(); }
  static absl::Status AFault() {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "rank 0 did not come",
                     {{"rank", "0"}});
  }

  testing::FakeNcclLibrary nccl_;
  cuda::ExchangeReport report_;
  std::array<std::byte, 64> memory_{};
};

TEST_F(MessageCarrierTest, MessagesThatAreCarriedChangeNothing) {
  const auto carrier = MakeJoined(3);

  Carry(*carrier);

  EXPECT_EQ(nccl_->parts.size(), 1U);
  EXPECT_EQ(gone(), 0U);
  EXPECT_EQ(carrier->Explain(AFault()).message(), AFault().message());
}

TEST_F(MessageCarrierTest, AFaultOfTheLibraryMakesTheStepNoResultAndIsTold) {
  const auto carrier = MakeJoined(3);
  nccl_->ended = ncclRemoteError;

  Carry(*carrier);

  EXPECT_EQ(gone(), 0b011U);
  const absl::Status why = carrier->Explain(AFault());
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MetadataOf(why).at("rank"), "0");
  EXPECT_THAT(std::string(why.message()), HasSubstr("rank 0 did not come; "));
  EXPECT_THAT(std::string(why.message()), HasSubstr("remote error"));
  SY_EXPECT_OK(carrier->Explain(absl::OkStatus()));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (nccl_->aborts == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(nccl_->aborts, 1) << "what NCCL may still do in the background ends";
}

TEST_F(MessageCarrierTest, ALostRankEndsTheGroup) {
  const auto carrier = MakeJoined(3);

  carrier->Lose(1);

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (gone() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(gone(), 0b011U);
  while (nccl_->aborts == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  Carry(*carrier);
  EXPECT_THAT(std::string(carrier->Explain(AFault()).message()), HasSubstr("given up"));
}

TEST_F(MessageCarrierTest, OneRankAloneSendsNothing) {
  const auto carrier = MakeJoined(1);

  Carry(*carrier);

  EXPECT_EQ(nccl_->groups, 0);
  EXPECT_EQ(nccl_->ranks, 0) << "no communicator";
}

}  // namespace
}  // namespace switchyard
