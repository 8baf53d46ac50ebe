// Ranks that exchange rows between processes: on GPUs of their own, or on one that they share. The
// processes are cuda_exchange_rank, a program beside this one. Skipped, with the reason, where
// there is no GPU, except where only arguments are checked.
#include "worker/device/cuda/backend/exchange_member.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "tests/testing/line_process.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::LineProcess;

cuda::ExchangeShape ShapeOf(int ranks) {
  return {.ranks = ranks,
          .tokens_max = 16,
          .hidden = 2048,
          .top_k = 4,
          .experts_of_rank = 8,
          .format = cuda::ExchangeFormat::kFp8};
}

class ExchangeMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&devices_) != cudaSuccess || devices_ == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    ranks_ = std::clamp(devices_, 2, 4);
  }
  // Ranks that have joined.
  void Start(int steps) {
    std::vector<std::string> keys;
    for (int r = 0; r < ranks_; ++r) {
      processes_.push_back(std::make_unique<LineProcess>(
          "cuda_exchange_rank",
          std::vector<std::string>{absl::StrCat(r), absl::StrCat(ranks_),
                                   absl::StrCat(r % devices_), absl::StrCat(steps)}));
    }
    for (const auto& process : processes_) keys.push_back(process->Read());
    for (const auto& process : processes_) {
      for (const std::string& key : keys) process->Write(key);
    }
    for (const auto& process : processes_) ASSERT_EQ(process->Read(), "joined");
  }
  int devices_ = 0;
  int ranks_ = 0;
  std::vector<std::unique_ptr<LineProcess>> processes_;
};

TEST_F(ExchangeMemberTest, ProcessesGetTheSumsOfTheirTokens) {
  Start(100);

  for (const auto& process : processes_) process->Write("go");

  for (const auto& process : processes_) EXPECT_EQ(process->Read(), "ok");
}

TEST_F(ExchangeMemberTest, AProcessThatIsKilledIsNamedByAllOthers) {
  Start(1'000'000);
  for (const auto& process : processes_) process->Write("go");

  processes_[1]->Kill();

  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (r == 1) continue;
    EXPECT_THAT(processes_[r]->Read(), HasSubstr("rank 1, step")) << r;
  }
}

// One that never begins is no different.
TEST_F(ExchangeMemberTest, AProcessThatDoesNotBeginIsNamed) {
  Start(10);

  processes_[0]->Write("go");

  EXPECT_THAT(processes_[0]->Read(), HasSubstr("rank 1, step 0 of the group: it did not come"));
  for (const auto& process : processes_) process->Kill();
}

TEST(ExchangeMemberArgumentsTest, ShapesAndKeysThatDoNotFitAreRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const auto cpu, CpuBackend::Create({.kernel_family = "scalar"}));
  cuda::ExchangeShape odd = ShapeOf(2);
  odd.hidden = 2000;
  EXPECT_THAT(ExchangeMember::Create(cpu.get(), odd, 0).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  EXPECT_THAT(ExchangeMember::Create(cpu.get(), ShapeOf(2), 2).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  EXPECT_THAT(ExchangeMember::Create(cpu.get(), ShapeOf(2), 0).status(),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported))
      << "a device that shares no memory";
}

TEST_F(ExchangeMemberTest, KeysThatAreNoneAreRefusedWithTheirRank) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, CudaBackend::Create({}));
  SY_ASSERT_OK_AND_ASSIGN(const auto member, ExchangeMember::Create(device.get(), ShapeOf(2), 0));

  const absl::Status joined =
      member->Join(std::vector<std::string>{member->key(), "none"}, std::chrono::seconds(1));

  EXPECT_THAT(joined, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(joined.message()), HasSubstr("rank 1"));
  EXPECT_THAT(member->Join(std::vector<std::string>{"one"}, std::chrono::seconds(1)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard
