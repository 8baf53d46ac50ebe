#include "ctl/sizing/buffers.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/resolve/buffer_hints.h"
#include "ctl/syctl.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using absl::StatusCode;
using switchyard::testing::FailsWith;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr MoeShape kDeepSeek{.hidden = 7168, .intermediate = 2048, .experts = 256, .top_k = 8};
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The need that the words name; the test fails without one.
BufferNeed Find(const std::vector<BufferNeed>& needs, absl::string_view buffer,
                absl::string_view mode, absl::string_view dtype) {
  for (const BufferNeed& need : needs) {
    if (need.buffer == buffer && need.mode == mode && need.dtype == dtype) return need;
  }
  ADD_FAILURE() << buffer << " " << mode << " " << dtype;
  return {};
}

// R36
TEST(BuffersOfTest, HaveDeepEpsOwnSizes) {
  const std::vector<BufferNeed> needs = BuffersOf(kDeepSeek, {});

  EXPECT_EQ(Find(needs, "RDMA buffer", "low_latency", "").bytes, 1'908'410'496);
  const BufferNeed fp8 = Find(needs, "NVLink buffer, by its hint", "normal", "fp8");
  EXPECT_EQ(fp8.bytes, 188'909'184);
  EXPECT_THAT(fp8.remark, HasSubstr("too small for combine"));
  const BufferNeed bf16 = Find(needs, "NVLink buffer, by its hint", "normal", "bf16");
  EXPECT_EQ(bf16.bytes, 335'709'824);
  EXPECT_EQ(bf16.remark, "");
  EXPECT_EQ(Find(needs, "NVLink buffer, for combine", "normal", "").bytes, 293'683'840);
}

// R37, R38
TEST(BuffersOfTest, HaveHcclsWindowsAndSayWhichAreTooLarge) {
  BufferOptions options{.path = "", .ranks = 16, .hccl_mb = 900};
  const std::vector<BufferNeed> needs = BuffersOf(kDeepSeek, options);

  const BufferNeed int8 = Find(needs, "window", "low_latency", "int8");
  EXPECT_EQ(int8.bytes, 540 * kMiB);
  SY_EXPECT_OK(int8.fits);
  const BufferNeed bf16 = Find(needs, "window", "low_latency", "bf16");
  EXPECT_EQ(bf16.bytes, 988 * kMiB);
  EXPECT_THAT(bf16.fits, FailsWith(StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_THAT(std::string(CheckWindows({kDeepSeek, options, needs}).message()),
              HasSubstr("HCCL_BUFFSIZE=988"));
  EXPECT_EQ(Find(needs, "window", "normal", "bf16").bytes, 2240 * kMiB);
  EXPECT_EQ(Find(needs, "window, fused operator", "low_latency", "").bytes, 896 * kMiB);

  options.hccl_mb = 2240;
  SY_EXPECT_OK(CheckWindows({kDeepSeek, options, BuffersOf(kDeepSeek, options)}));
}

// A row for each expert in low_latency, with a header; a row for each rank in normal mode.
TEST(BuffersOfTest, HaveTheRowsOfOurOwnSteps) {
  const std::vector<BufferNeed> needs = BuffersOf(kDeepSeek, {.path = "", .ranks = 4});

  EXPECT_EQ(Find(needs, "rows of a step, sent", "low_latency", "bf16").bytes,
            128 * 8 * (2 * 7168 + 16));
  EXPECT_EQ(Find(needs, "rows of a step, sent", "normal", "fp8").bytes, 4096 * 4 * (7168 + 224));
  EXPECT_GT(Find(needs, "answers of a step", "normal", "").bytes, 0);
}

TEST(SizeBuffersTest, RefusesWhatTheLibrariesDo) {
  const auto bad = FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig);
  EXPECT_THAT(SizeBuffers({.path = SY_SHIPPED_MODEL, .ranks = 3}).status(), bad);
  EXPECT_THAT(SizeBuffers({.path = SY_SHIPPED_MODEL, .sms = 21}).status(), bad);
  EXPECT_FALSE(SizeBuffers({.path = "/nowhere"}).ok());
}

TEST(SizeBuffersTest, SyctlShowsThemAndFailsWhereAWindowIsTooSmall) {
  constexpr Terminal kScreen{.is_terminal = true, .width = 120};
  const std::string model = SY_SHIPPED_MODEL;

  const SyctlResult table = RunSyctl({"model", "buffers", model, "--ranks", "4"}, kScreen);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("16 experts, hidden 256, top-4; 4 ranks"),
                               HasSubstr("deepep_v1"), HasSubstr("hccl")));

  const SyctlResult small =
      RunSyctl({"model", "buffers", model, "--hccl-buffsize", "1", "-o", "json"}, kScreen);
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.out, HasSubstr("\"remark\": \"HCCL_BUFFSIZE 1 is too small\""));
  EXPECT_THAT(small.err, HasSubstr("start it with HCCL_BUFFSIZE="));

  const SyctlResult odd = RunSyctl({"model", "buffers", model, "--ranks", "0"}, kScreen);
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.out, Not(HasSubstr("LIBRARY")));
}

}  // namespace
}  // namespace switchyard::ctl
