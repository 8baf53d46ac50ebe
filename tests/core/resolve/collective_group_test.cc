#include "core/resolve/collective_group.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr std::int32_t kExperts = 12;

Plan PlanOf(std::int32_t workers, DeviceKind kind = DeviceKind::kCuda) {
  Plan plan;
  plan.deployment = "d";
  plan.shape = {.hidden = 256, .intermediate = 128, .experts = kExperts, .top_k = 4};
  for (std::int32_t w = 0; w < workers; ++w) {
    PlanWorker worker;
    worker.id = "w" + std::to_string(w);
    worker.device = kind;
    plan.workers.push_back(worker);
  }
  for (const std::int32_t layer : {3, 4, 9}) {
    LayerPlacement placement{.layer = LayerId{layer}, .experts = {}};
    const std::int32_t of_worker = kExperts / workers;
    for (std::int32_t e = 0; e < kExperts; ++e) {
      placement.experts.push_back(
          {ExpertId{e}, WorkerOrdinal{e / of_worker}, SlotId{e % of_worker}});
    }
    plan.layers.push_back(placement);
    DispatchConfig config;
    config.layer = LayerId{layer};
    config.phase = Phase::kDecode;
    config.edge = {.source = kind, .worker = kind};
    config.wire_dtype = DispatchDtype::kFp8;
    plan.configs.push_back(config);
  }
  return plan;
}

CollectiveDemand Demand() {
  return {.phase = Phase::kDecode,
          .mode = DispatchMode::kLowLatency,
          .source = DeviceKind::kCuda,
          .max_tokens = 128,
          .sources = 2};
}

std::string Refusal(const Plan& plan, const CollectiveDemand& demand, absl::StatusCode code,
                    Reason reason) {
  const auto resolved = ResolveCollective(plan, demand);
  EXPECT_THAT(resolved.status(), FailsWith(code, reason));
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr("binding p2p"));
  return std::string(resolved.status().message());
}

TEST(CollectiveGroupTest, SaysWhatGroupThePlanMakes) {
  EXPECT_EQ(
      ResolveCollective(PlanOf(4), Demand()).value(),
      (CollectiveGroup{
          .shape = PlanOf(4).shape,
          .workers = 4,
          .source_ranks = {4, 5},
          .tokens_max = 128,
          .wire = kFp8Format,
          .forms = {{LayerId{3}, kFp8Format}, {LayerId{4}, kFp8Format}, {LayerId{9}, kFp8Format}},
          .row_of_each_expert = true}));
  CollectiveDemand normal = Demand();
  normal.mode = DispatchMode::kNormal;
  EXPECT_FALSE(ResolveCollective(PlanOf(1), normal)->row_of_each_expert);
}

TEST(CollectiveGroupTest, ASourceInTheProcessOfAWorkerSharesItsRank) {
  CollectiveDemand demand = Demand();
  demand.hosts = {"w3", "w1"};
  const CollectiveGroup group = ResolveCollective(PlanOf(4), demand).value();
  EXPECT_EQ(group.source_ranks, (std::vector<std::int32_t>{3, 1}));
  EXPECT_EQ(group.ranks(), 4);
  EXPECT_FALSE(group.HasRankOf(0));

  // Those whose worker the plan does not have, and those in no worker's process, have their own.
  demand.sources = 4;
  demand.hosts = {"w3", "elsewhere", "", "w0"};
  const CollectiveGroup mixed = ResolveCollective(PlanOf(4), demand).value();
  EXPECT_EQ(mixed.source_ranks, (std::vector<std::int32_t>{3, 4, 5, 0}));
  EXPECT_EQ(mixed.ranks(), 6);
  EXPECT_TRUE(mixed.HasRankOf(1));
  EXPECT_EQ(GroupRanks(PlanOf(4), 4, demand.hosts), 6);

  // Six workers and six sources are six ranks, where eight are the most.
  demand.sources = 6;
  demand.hosts = {"w0", "w1", "w2", "w3", "w4", "w5"};
  const Plan wide = PlanOf(6);
  EXPECT_EQ(ResolveCollective(wide, demand)->ranks(), 6);
  EXPECT_EQ(GroupTokensMax(wide, demand), std::min(256, 24576 / (6 * wide.shape.top_k)));
}

TEST(CollectiveGroupTest, HostsAreOneForEachSourceAndNoOthers) {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  CollectiveDemand demand = Demand();
  demand.hosts = {"w0"};
  EXPECT_THAT(Refusal(PlanOf(4), demand, kBad, Reason::kBadConfig),
              HasSubstr("1 hosts for 2 sources"));
  demand.hosts = {"w2", "w2"};
  EXPECT_THAT(Refusal(PlanOf(4), demand, kBad, Reason::kBadConfig),
              HasSubstr("worker w2 is named as the host of two sources"));
  demand.hosts = {"", ""};
  EXPECT_EQ(ResolveCollective(PlanOf(4), demand)->ranks(), 6);
  // Whatever a request says, nothing is counted that far.
  EXPECT_EQ(SourceRanks(PlanOf(4), 1 << 30, {}).size(), std::size_t{8});
}

TEST(CollectiveGroupTest, R45TokensAndExpertsAreBounded) {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  Plan uneven = PlanOf(4);
  uneven.shape.experts = 13;
  EXPECT_THAT(Refusal(uneven, Demand(), kBad, Reason::kBadConfig),
              HasSubstr("13 experts do not divide by 4 workers"));
  CollectiveDemand many = Demand();
  many.max_tokens = 257;
  EXPECT_THAT(Refusal(PlanOf(4), many, kBad, Reason::kTooManyTokens),
              HasSubstr("max_tokens 257; a step of this group has 1 to 256"));
  many.max_tokens = 256;
  SY_EXPECT_OK(ResolveCollective(PlanOf(4), many).status());
  CollectiveDemand on_cpus = Demand();
  on_cpus.source = DeviceKind::kCpu;
  on_cpus.max_tokens = 1025;
  Refusal(PlanOf(4, DeviceKind::kCpu), on_cpus, kBad, Reason::kTooManyTokens);
  on_cpus.max_tokens = 1024;
  SY_EXPECT_OK(ResolveCollective(PlanOf(4, DeviceKind::kCpu), on_cpus).status());
  many.sources = 9;
  Refusal(PlanOf(4), many, kBad, Reason::kBadConfig);
}

TEST(CollectiveGroupTest, AllPairsOfAStepFitIntoTheListsOfAGpu) {
  Plan wide = PlanOf(6);
  wide.shape.top_k = 16;
  EXPECT_EQ(GroupTokensMax(wide, Demand()), 24576 / (8 * 16));
  EXPECT_EQ(GroupTokensMax(PlanOf(6), Demand()), 256);
  CollectiveDemand normal = Demand();
  normal.mode = DispatchMode::kNormal;
  EXPECT_EQ(GroupTokensMax(wide, normal), 524288 / (8 * 16));
  EXPECT_EQ(GroupTokensMax(PlanOf(6), normal), 8192);
}

// R61: a step of any size, in rounds of what the group takes at once.
TEST(CollectiveGroupTest, NormalStepsMayHaveMoreTokensThanTheGroupTakesAtOnce) {
  CollectiveDemand normal = Demand();
  normal.mode = DispatchMode::kNormal;
  normal.max_tokens = 131072;
  EXPECT_EQ(ResolveCollective(PlanOf(4), normal)->tokens_max, 8192);
  normal.source = DeviceKind::kCpu;
  EXPECT_EQ(ResolveCollective(PlanOf(4, DeviceKind::kCpu), normal)->tokens_max, 1024);
  normal.max_tokens = 70;
  EXPECT_EQ(ResolveCollective(PlanOf(4, DeviceKind::kCpu), normal)->tokens_max, 70);
  normal.max_tokens = 0;
  Refusal(PlanOf(4, DeviceKind::kCpu), normal, absl::StatusCode::kInvalidArgument,
          Reason::kTooManyTokens);
}

TEST(CollectiveGroupTest, BeyondTheKernelsOfAKind) {
  constexpr auto kNo = absl::StatusCode::kFailedPrecondition;
  CollectiveDemand many = Demand();
  many.sources = 5;
  EXPECT_THAT(Refusal(PlanOf(4), many, kNo, Reason::kUnsupported),
              HasSubstr("9 ranks, and a group of devices of kind cuda has up to 8"));
  Plan odd = PlanOf(2);
  odd.shape.hidden = 320;
  EXPECT_THAT(Refusal(odd, Demand(), kNo, Reason::kUnsupported),
              HasSubstr("rows of 320 values; a group of devices of kind cuda takes multiples of "
                        "128"));
  odd.shape.hidden = 8320;
  EXPECT_THAT(Refusal(odd, Demand(), kNo, Reason::kUnsupported), HasSubstr("8320 values of a row"));
}

// Only the kernels for many tokens have them on GPUs.
TEST(CollectiveGroupTest, SumsInFp8AreOfNormalMode) {
  CollectiveDemand demand = Demand();
  demand.combine_dtype = DispatchDtype::kFp8;
  EXPECT_THAT(
      Refusal(PlanOf(2), demand, absl::StatusCode::kInvalidArgument, Reason::kBadConfig),
      HasSubstr(
          "answers come back as bf16, in normal mode also as fp8, not as fp8 in low_latency"));
  demand.mode = DispatchMode::kNormal;
  demand.combine_dtype = DispatchDtype::kInt8;
  Refusal(PlanOf(2), demand, absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  demand.combine_dtype = DispatchDtype::kFp8;
  SY_ASSERT_OK_AND_ASSIGN(const CollectiveGroup group, ResolveCollective(PlanOf(2), demand));
  EXPECT_EQ(group.combine_dtype, DispatchDtype::kFp8);
  EXPECT_EQ(group.tokens_max, 257) << "of 128 that the session has";
  demand.source = DeviceKind::kCpu;
  EXPECT_EQ(ResolveCollective(PlanOf(2, DeviceKind::kCpu), demand)->tokens_max, 128);
  demand.max_tokens = 500;
  demand.source = DeviceKind::kCuda;
  EXPECT_EQ(ResolveCollective(PlanOf(2), demand)->tokens_max, 500);
}

// A draft layer that is not quantized, beside layers that are.
TEST(CollectiveGroupTest, LayersHaveFormatsOfTheirOwn) {
  Plan plan = PlanOf(2);
  plan.configs[0].wire_dtype = DispatchDtype::kNvfp4;
  plan.configs[0].wire_scale = ScaleKind::kE4m3;
  plan.configs[0].global_scale = 0.5F;
  plan.configs[2].wire_dtype = DispatchDtype::kBf16;

  SY_ASSERT_OK_AND_ASSIGN(const CollectiveGroup group, ResolveCollective(plan, Demand()));

  EXPECT_EQ(group.wire, kBf16Format) << "the largest rows";
  EXPECT_THAT(group.forms, ::testing::ElementsAre(LayerForm{LayerId{3}, kNvfp4Format, 0.5F},
                                                  LayerForm{LayerId{4}, kFp8Format},
                                                  LayerForm{LayerId{9}, kBf16Format}));
  Plan swapped = plan;
  std::swap(swapped.configs[1].wire_dtype, swapped.configs[2].wire_dtype);
  EXPECT_NE(*ResolveCollective(swapped, Demand()), group) << "ranks would mean two things";
}

TEST(CollectiveGroupTest, R123AGroupIsOfOneKind) {
  constexpr auto kNo = absl::StatusCode::kFailedPrecondition;
  Plan mixed = PlanOf(2);
  mixed.workers[1].device = DeviceKind::kAscend;
  EXPECT_THAT(Refusal(mixed, Demand(), kNo, Reason::kUnsupported),
              HasSubstr("worker w1 is of kind ascend and the source of kind cuda"));
  CollectiveDemand cpu = Demand();
  cpu.source = DeviceKind::kCpu;
  Refusal(PlanOf(2), cpu, kNo, Reason::kUnsupported);
}

// As they are once workers have come and gone.
TEST(CollectiveGroupTest, ExpertsNeedNotBeInOrder) {
  Plan plan = PlanOf(2);
  EXPECT_TRUE(GroupPlaces(plan, plan.layers[2]).empty());
  std::swap(plan.layers[2].experts[0].expert, plan.layers[2].experts[11].expert);
  std::swap(plan.layers[2].experts[3].expert, plan.layers[2].experts[4].expert);
  SY_EXPECT_OK(ResolveCollective(plan, Demand()).status());
  EXPECT_TRUE(GroupPlaces(plan, plan.layers[1]).empty());
  EXPECT_THAT(GroupPlaces(plan, plan.layers[2]),
              ::testing::ElementsAre(11, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 0));
}

TEST(CollectiveGroupTest, PlacementsThatNoGroupHas) {
  constexpr auto kNo = absl::StatusCode::kFailedPrecondition;
  Plan replicated = PlanOf(2);
  replicated.layers[1].experts.push_back({ExpertId{0}, WorkerOrdinal{1}, SlotId{6}});
  EXPECT_THAT(Refusal(replicated, Demand(), kNo, Reason::kUnsupported), HasSubstr("layer 4"));
  Plan shuffled = PlanOf(2);
  shuffled.layers[2].experts[5].worker = WorkerOrdinal{1};
  EXPECT_THAT(Refusal(shuffled, Demand(), kNo, Reason::kUnsupported), HasSubstr("layer 9"));
  Plan twice = PlanOf(2);
  twice.layers[2].experts[5].expert = ExpertId{4};
  EXPECT_THAT(Refusal(twice, Demand(), kNo, Reason::kUnsupported), HasSubstr("layer 9"));
  CollectiveDemand prefill = Demand();
  prefill.phase = Phase::kPrefill;
  EXPECT_THAT(Refusal(PlanOf(2), prefill, kNo, Reason::kUnsupported), HasSubstr("phase prefill"));
}

}  // namespace
}  // namespace switchyard
