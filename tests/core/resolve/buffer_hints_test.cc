#include "core/resolve/buffer_hints.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr auto kBf16 = DispatchDtype::kBf16;
constexpr auto kInt8 = DispatchDtype::kInt8;

// R36: golden values of DeepEP's own function.
TEST(BufferHintsTest, DeepEpLowLatencyGoldens) {
  EXPECT_EQ(DeepEpLowLatencyBytes(128, 7168, 256), 1'908'410'496);
  EXPECT_EQ(DeepEpLowLatencyBytes(128, 4096, 512), 2'181'042'304);
  EXPECT_EQ(DeepEpLowLatencyBytes(128, 7168, 384), 2'862'615'680);
}

DeepEpNormal EightRanks(std::int64_t hidden_bytes) {
  return {.ranks = 8, .sms = 20, .recv_chunk = 256, .hidden_bytes = hidden_bytes};
}

// R34: a buffer that was sized by FP8 rows is too small for the combine of the same layer.
TEST(BufferHintsTest, DeepEpNormalHintOfQuantizedRowsIsTooSmallForCombine) {
  EXPECT_EQ(DeepEpNormalHintBytes(EightRanks(2 * 7168)), 335'709'824);
  EXPECT_EQ(DeepEpNormalHintBytes(EightRanks(7168)), 188'909'184);
  EXPECT_EQ(DeepEpNormalCombineBytes(EightRanks(7168), 7168), 293'683'840);
  EXPECT_GT(DeepEpNormalCombineBytes(EightRanks(7168), 7168),
            DeepEpNormalHintBytes(EightRanks(7168)));

  EXPECT_EQ(DeepEpNormalCombineBytes(EightRanks(4096), 4096), 167'854'720);
  EXPECT_EQ(DeepEpNormalHintBytes(EightRanks(4096)), 125'994'624);
  EXPECT_EQ(DeepEpNormalCombineBytes(EightRanks(2048), 2048), 83'968'640);
  EXPECT_EQ(DeepEpNormalHintBytes(EightRanks(2048)), 84'051'584);
}

TEST(BufferHintsTest, DeepEpNormalHintOfBf16RowsHoldsCombine) {
  for (const std::int64_t hidden : {2048, 2560, 4096, 5120, 7168, 8192}) {
    EXPECT_GE(DeepEpNormalHintBytes(EightRanks(2 * hidden)),
              DeepEpNormalCombineBytes(EightRanks(0), hidden));
  }
}

HcclShape Decode() {
  return {.tokens = 128, .hidden = 7168, .ranks = 16, .local_experts = 16, .top_k = 8};
}

// R37: golden windows of sgl-kernel-npu.
TEST(BufferHintsTest, HcclWindowGoldens) {
  HcclShape prefill = Decode();
  prefill.tokens = 4096;

  EXPECT_EQ(HcclLowLatencyBytes(Decode(), kInt8), 540 * kMiB);
  EXPECT_EQ(HcclLowLatencyBytes(Decode(), kBf16), 988 * kMiB);
  EXPECT_EQ(HcclNormalBytes(prefill, kBf16, /*rounds=*/1), 2240 * kMiB);
  EXPECT_EQ(HcclFusedBytes(Decode()), 896 * kMiB);
}

// R38
TEST(BufferHintsTest, HcclWindowOfInt8IsSmaller) {
  for (const std::int64_t hidden : {1024, 2048, 4096, 7168}) {
    HcclShape shape = Decode();
    shape.hidden = hidden;
    EXPECT_LT(HcclLowLatencyBytes(shape, kInt8), HcclLowLatencyBytes(shape, kBf16)) << hidden;
    EXPECT_LT(HcclNormalBytes(shape, kInt8, 1), HcclNormalBytes(shape, kBf16, 1)) << hidden;
  }
}

TEST(BufferHintsTest, HcclWindowsGrowWithSharedExpertsAndRounds) {
  HcclShape shared = Decode();
  shared.shared_experts = 1;

  EXPECT_EQ(HcclLowLatencyBytes(shared, kInt8) - HcclLowLatencyBytes(Decode(), kInt8),
            std::int64_t{128} * 14336 * 2);
  EXPECT_EQ(HcclNormalBytes(Decode(), kBf16, 2) - HcclNormalBytes(Decode(), kBf16, 1),
            std::int64_t{128} * 8 * 14336 * 2);
}

// R37: a config above the window that the worker reports is refused with what it needs.
TEST(BufferHintsTest, RefusesAConfigAboveTheReportedWindow) {
  const std::int64_t needed = HcclLowLatencyBytes(Decode(), kInt8);

  SY_EXPECT_OK(CheckHcclWindow(needed, 540));
  const absl::Status refused = CheckHcclWindow(needed, 539);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("needs an HCCL window of 540 MB and the worker reports 539 MB"));
  EXPECT_EQ(MetadataOf(refused).at("want"), "540");
  EXPECT_THAT(CheckHcclWindow(needed + 1, 540),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
