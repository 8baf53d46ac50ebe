#include "tools/deployment/plan_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Three layers alike on two workers; `asked` is the session's own mode.
SessionGrant Grant(Phase phase, DispatchMode planned, DispatchMode asked) {
  SessionGrant grant;
  grant.request.phase = phase;
  grant.request.mode = asked;
  Plan& plan = grant.plan;
  plan.model = "toy";
  plan.epoch = Epoch{7};
  plan.workers = {{"w0", {1, 1}, "a:1", DeviceKind::kCpu, "scalar"},
                  {"w1", {1, 2}, "b:1", DeviceKind::kCpu, "scalar"}};
  for (const int layer : {0, 1, 2}) {
    plan.layers.push_back(
        {LayerId{layer},
         {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}}, {ExpertId{1}, WorkerOrdinal{1}, SlotId{0}}}});
    for (const Phase each : {Phase::kPrefill, Phase::kDecode}) {
      DispatchConfig config;
      config.layer = LayerId{layer};
      config.phase = each;
      config.mode = planned;
      config.trail = {"mode: few tokens at a time", "dtype: the experts are unquantized"};
      plan.configs.push_back(config);
    }
  }
  return grant;
}

TEST(PlanReportTest, LayersThatAreAlikeShareALine) {
  const std::string report =
      DescribePlan(Grant(Phase::kPrefill, DispatchMode::kNormal, DispatchMode::kNormal),
                   Grant(Phase::kDecode, DispatchMode::kLowLatency, DispatchMode::kLowLatency));

  EXPECT_EQ(report,
            "placement of toy, epoch 7\n"
            "  worker  kernel  layers  experts\n"
            "  w0      scalar  0-2     0\n"
            "  w1      scalar  0-2     1\n"
            "dispatch configs and why\n"
            "  layers 0-2, prefill, cpu -> cpu: normal, bf16\n"
            "    - mode: few tokens at a time\n"
            "    - dtype: the experts are unquantized\n"
            "  layers 0-2, decode, cpu -> cpu: low_latency, bf16\n"
            "    - mode: few tokens at a time\n"
            "    - dtype: the experts are unquantized\n");
}

TEST(PlanReportTest, SaysWhenTheSessionChoseTheMode) {
  const std::string report =
      DescribePlan(Grant(Phase::kPrefill, DispatchMode::kNormal, DispatchMode::kLowLatency),
                   Grant(Phase::kDecode, DispatchMode::kLowLatency, DispatchMode::kLowLatency));

  EXPECT_THAT(report, HasSubstr("prefill, cpu -> cpu: low_latency, bf16"));
  EXPECT_THAT(report, HasSubstr("mode low_latency: requested by the session"));
  EXPECT_THAT(report, Not(HasSubstr("mode normal: the session")));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
