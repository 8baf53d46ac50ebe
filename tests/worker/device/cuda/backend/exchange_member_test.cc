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
#include <dlfcn.h>

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
          .formats = cuda::ExchangeFormat::kFp8};
}

// What the ranks of a group do; several ranks may share a GPU.
struct Group {
  int ranks = 0;         // 0: one for each GPU, 2 to 4
  int expert_ranks = 0;  // 0: all
  std::string wire = "fp8";
  std::string unit = "worker";
};

class ExchangeMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&devices_) != cudaSuccess || devices_ == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  // Ranks that have joined.
  void Start(int steps, const Group& group = {}) {
    ranks_ = group.ranks == 0 ? std::clamp(devices_, 2, 4) : group.ranks;
    const int expert_ranks = group.expert_ranks == 0 ? ranks_ : group.expert_ranks;
    std::vector<std::string> keys;
    for (int r = 0; r < ranks_; ++r) {
      processes_.push_back(std::make_unique<LineProcess>(
          "cuda_exchange_rank",
          std::vector<std::string>{absl::StrCat(r), absl::StrCat(ranks_),
                                   absl::StrCat(expert_ranks), absl::StrCat(r % devices_),
                                   absl::StrCat(steps), group.wire, group.unit}));
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

class ExchangeSumsTest : public ExchangeMemberTest, public ::testing::WithParamInterface<Group> {};

TEST_P(ExchangeSumsTest, ProcessesGetTheSumsOfTheirTokens) {
  // Ranks that share a GPU wait for each other's slices of its time.
  Start(devices_ > 1 ? 50 : 5, GetParam());

  for (const auto& process : processes_) process->Write("go");

  for (const auto& process : processes_) EXPECT_EQ(process->Read(), "ok");
}

INSTANTIATE_TEST_SUITE_P(
    Groups, ExchangeSumsTest,
    ::testing::Values(Group{}, Group{.wire = "bf16"}, Group{.unit = "expert"},
                      Group{.wire = "bf16", .unit = "expert"}, Group{.wire = "all"},
                      Group{.unit = "many"}, Group{.wire = "bf16", .unit = "many"},
                      Group{.wire = "all", .unit = "many"}, Group{.wire = "all", .unit = "expert"},
                      Group{.unit = "fp8"}, Group{.wire = "all", .unit = "fp8"},
                      Group{.expert_ranks = 1}, Group{.ranks = 1, .unit = "expert"},
                      Group{.ranks = 4, .expert_ranks = 2, .unit = "expert"}),
    [](const auto& test) {
      const Group& group = test.param;
      return absl::StrCat("Of", group.ranks, "With", group.expert_ranks, group.wire, group.unit);
    });

TEST_F(ExchangeMemberTest, AProcessThatIsKilledIsNamedByAllOthers) {
  Start(1'000'000);
  for (const auto& process : processes_) process->Write("go");
  for (const auto& process : processes_) ASSERT_EQ(process->Read(), "running");

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

// NCCL takes no two ranks on one GPU.
class ExchangeByMessagesTest : public ExchangeMemberTest {
 protected:
  void SetUp() override {
    ExchangeMemberTest::SetUp();
    if (IsSkipped()) return;
    if (devices_ < 2) GTEST_SKIP() << "one CUDA device";
    if (::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == nullptr) GTEST_SKIP() << "no NCCL";
  }
};

TEST_F(ExchangeByMessagesTest, ProcessesGetTheSumsOfTheirTokens) {
  for (const char* const wire : {"fp8", "bf16", "all"}) {
    processes_.clear();
    Start(50, {.wire = wire, .unit = "messages"});

    for (const auto& process : processes_) process->Write("go");

    for (const auto& process : processes_) EXPECT_EQ(process->Read(), "ok") << wire;
  }
}

TEST_F(ExchangeByMessagesTest, AProcessThatIsKilledIsNamed) {
  Start(1'000'000, {.ranks = 2, .unit = "messages"});
  for (const auto& process : processes_) process->Write("go");
  for (const auto& process : processes_) ASSERT_EQ(process->Read(), "running");

  processes_[1]->Kill();

  EXPECT_THAT(processes_[0]->Read(), HasSubstr("rank 1, step"));
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

TEST_F(ExchangeMemberTest, AGroupMakesAsManyStepsAsItsNumbersTellApart) {
  SY_ASSERT_OK_AND_ASSIGN(const auto device, CudaBackend::Create({}));
  SY_ASSERT_OK_AND_ASSIGN(const auto member, ExchangeMember::Create(device.get(), ShapeOf(2), 0));

  SY_EXPECT_OK(member->CountSteps(1, 2));
  SY_EXPECT_OK(member->CountSteps(1, 2));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(member->CountSteps(1, 2),
                FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  }
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
