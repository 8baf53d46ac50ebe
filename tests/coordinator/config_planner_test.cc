#include "coordinator/config_planner.h"

#include <map>
#include <set>

#include "gtest/gtest.h"

#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeCapabilities;
using testing::MakeFacts;
using testing::MakeSpec;

CapabilitySet DeepEp() {
  CapabilitySet capabilities = MakeCapabilities();
  capabilities.device = DeviceKind::kCuda;
  capabilities.device_profile = "deepep_v1";
  return capabilities;
}

DeploymentSpec Complete(const DeploymentSpec& spec) { return *CompleteSpec(spec); }

TEST(ConfigPlannerTest, PicksTheModeByThePhase) {
  const std::vector<CapabilitySet> workers(2, MakeCapabilities());

  SY_ASSERT_OK_AND_ASSIGN(const auto configs,
                          PlanConfigs(Complete(MakeSpec()), MakeFacts(), workers));

  ASSERT_EQ(configs.size(), 2U * 3U) << "2 layers, 3 phases, 1 edge";
  std::map<Phase, DispatchMode> modes;
  for (const DispatchConfig& config : configs) {
    modes[config.phase] = config.mode;
    EXPECT_EQ(config.wire_dtype, DispatchDtype::kBf16);
    EXPECT_EQ(config.combine_dtype, DispatchDtype::kBf16);
    const bool low_latency = config.mode == DispatchMode::kLowLatency;
    EXPECT_EQ(config.max_tokens_per_step, low_latency ? 512 : 0);
  }
  EXPECT_EQ(modes, (std::map<Phase, DispatchMode>{{Phase::kPrefill, DispatchMode::kNormal},
                                                  {Phase::kDecode, DispatchMode::kLowLatency},
                                                  {Phase::kMixed, DispatchMode::kNormal}}));
}

TEST(ConfigPlannerTest, OrdersByLayerPhaseAndEdge) {
  std::vector<CapabilitySet> workers = {DeepEp(), MakeCapabilities()};
  SY_ASSERT_OK_AND_ASSIGN(const auto configs,
                          PlanConfigs(Complete(MakeSpec()), MakeFacts(), workers));

  const auto key = [](const DispatchConfig& c) { return std::tuple(c.layer, c.phase, c.edge); };
  for (std::size_t i = 1; i < configs.size(); ++i) EXPECT_LT(key(configs[i - 1]), key(configs[i]));
  // From hosts to both kinds, and from a GPU to GPUs: a rank of a group.
  std::set<Edge> edges;
  for (const DispatchConfig& config : configs) edges.insert(config.edge);
  EXPECT_EQ(edges, (std::set<Edge>{{DeviceKind::kCpu, DeviceKind::kCpu},
                                   {DeviceKind::kCpu, DeviceKind::kCuda},
                                   {DeviceKind::kCuda, DeviceKind::kCuda}}));
  EXPECT_EQ(configs.size(), 2U * 3U * edges.size());
}

TEST(ConfigPlannerTest, GivesItsReasons) {
  DeploymentSpec spec = MakeSpec();
  spec.phases = {{Phase::kPrefill, DispatchMode::kLowLatency}, {Phase::kDecode, {}}};
  spec.max_tokens_per_step = 96;
  const std::vector<CapabilitySet> workers(1, MakeCapabilities());

  SY_ASSERT_OK_AND_ASSIGN(const auto configs, PlanConfigs(Complete(spec), MakeFacts(), workers));

  EXPECT_EQ(configs[0].trail[0], "mode low_latency: the deployment asks for it in phase prefill");
  EXPECT_NE(configs[1].trail[0].find("mode low_latency: decode"), std::string::npos);
  for (const DispatchConfig& config : configs) {
    ASSERT_EQ(config.trail.size(), 5U);
    EXPECT_NE(config.trail[1].find("wire dtype bf16"), std::string::npos);
    EXPECT_NE(config.trail[2].find("combine dtype bf16"), std::string::npos);
    EXPECT_EQ(config.trail[3], "max_tokens_per_step 96: set by the deployment");
    EXPECT_EQ(config.trail[4], "limits of device profile cpu hold: top-k 4 of 32");
  }
}

// R22: the plan says which rule decided.
TEST(ConfigPlannerTest, TheTrailNamesTheRuleThatDecided) {
  const std::vector<CapabilitySet> workers(1, MakeCapabilities());

  SY_ASSERT_OK_AND_ASSIGN(const auto configs,
                          PlanConfigs(Complete(MakeSpec()), MakeFacts(), workers));

  for (const DispatchConfig& config : configs) {
    EXPECT_EQ(config.trail[1],
              "wire dtype bf16: rule 3b (scheme): experts of scheme none on cpu prefer it");
  }
}

ModelFacts FactsWith(QuantScheme scheme) {
  ModelFacts facts = MakeFacts();
  for (LayerStorage& layer : facts.storage) {
    layer.scheme = scheme;
    layer.quant_config.emplace();
  }
  return facts;
}

// R121: a scheme that one of the workers did not prove is refused before any traffic; rows in a
// dtype that one of them did not prove are not planned.
TEST(ConfigPlannerTest, PlansOnlyWhatBothEndsProved) {
  const ModelFacts facts = FactsWith(QuantScheme::kW8A8Int8);
  std::vector<CapabilitySet> workers(2, MakeCapabilities());
  workers[0].schemes.push_back(QuantScheme::kW8A8Int8);
  workers[0].wire_dtypes.push_back(DispatchDtype::kInt8);

  EXPECT_THAT(PlanConfigs(Complete(MakeSpec()), facts, workers),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  workers[1].schemes = workers[0].schemes;
  SY_ASSERT_OK_AND_ASSIGN(auto configs, PlanConfigs(Complete(MakeSpec()), facts, workers));
  for (const DispatchConfig& config : configs) {
    EXPECT_EQ(config.scheme, QuantScheme::kW8A8Int8);
    EXPECT_EQ(config.format(), kBf16Format);
    EXPECT_NE(config.trail[2].find("bf16, not int8: capability"), std::string::npos)
        << config.trail[2];
  }
  workers[1].wire_dtypes = workers[0].wire_dtypes;
  SY_ASSERT_OK_AND_ASSIGN(configs, PlanConfigs(Complete(MakeSpec()), facts, workers));
  for (const DispatchConfig& config : configs) EXPECT_EQ(config.format(), kInt8Format);
}

// R5, R6: kernels that quantize by themselves take BF16 rows, of whatever scheme; an explicit wish
// counts more.
TEST(ConfigPlannerTest, SelfQuantizingRunnersGetBf16Rows) {
  const ModelFacts facts = FactsWith(QuantScheme::kW8A8Int8);
  CapabilitySet worker = MakeCapabilities();
  worker.schemes.push_back(QuantScheme::kW8A8Int8);
  worker.wire_dtypes.push_back(DispatchDtype::kInt8);
  DeploymentSpec spec = MakeSpec();
  spec.moe_runner_backend = RunnerBackend::kCutlass;

  SY_ASSERT_OK_AND_ASSIGN(auto configs, PlanConfigs(Complete(spec), facts, {{worker}}));
  for (const DispatchConfig& config : configs) {
    EXPECT_EQ(config.format(), kBf16Format);
    EXPECT_NE(config.trail[1].find("rule 4 (self_quantizing_runner)"), std::string::npos)
        << config.trail[1];
  }
  spec.dispatcher_output_dtype = DtypeChoice::kInt8;
  SY_ASSERT_OK_AND_ASSIGN(configs, PlanConfigs(Complete(spec), facts, {{worker}}));
  for (const DispatchConfig& config : configs) EXPECT_EQ(config.format(), kInt8Format);
}

// R77, R29, R55: each layer has its own storage: NVFP4 with its global scale, one that is excluded,
// one of a draft.
TEST(ConfigPlannerTest, EachLayerIsPlannedByItsOwnStorage) {
  ModelFacts facts = MakeFacts({.layers = 3});
  facts.storage[0].scheme = QuantScheme::kNvfp4;
  facts.storage[0].quant_config.emplace().input_global_scale = 672.0F;
  facts.storage[1].excluded = true;
  facts.storage[1].quant_config = LayerQuantConfig{};
  facts.storage[2].role = LayerRole::kDraft;
  CapabilitySet worker = MakeCapabilities();
  worker.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                        DispatchDtype::kNvfp4};
  worker.schemes.push_back(QuantScheme::kNvfp4);
  DeploymentSpec spec = MakeSpec();
  spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};

  SY_ASSERT_OK_AND_ASSIGN(const auto configs, PlanConfigs(Complete(spec), facts, {{worker}}));

  ASSERT_EQ(configs.size(), 6U);
  EXPECT_EQ(configs[0].format(), kBf16Format) << "normal mode sends NVFP4 layers BF16";
  EXPECT_EQ(configs[0].global_scale, 1.0F);
  EXPECT_EQ(configs[1].format(), kNvfp4Format);
  EXPECT_EQ(configs[1].global_scale, 672.0F);
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_EQ(configs[i].format(), kBf16Format);
    EXPECT_EQ(configs[i].scheme, QuantScheme::kNone);
  }
}

CapabilitySet QuantizedCpu() {
  CapabilitySet worker = MakeCapabilities();
  worker.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8};
  worker.schemes.push_back(QuantScheme::kFp8Block);
  worker.schemes.push_back(QuantScheme::kW8A8Int8);
  return worker;
}

// Narrow wishes beat wide ones, for the layers and phases that they name and no other.
TEST(ConfigPlannerTest, PlansWhatIsAskedForByDeploymentPhaseAndLayer) {
  const ModelFacts facts = FactsWith(QuantScheme::kFp8Block);  // layers 1 and 3
  DeploymentSpec spec = MakeSpec();
  spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}, DtypeChoice::kBf16}};
  spec.dispatcher_output_dtype = DtypeChoice::kBf16;
  spec.layers = {{LayerId{3}, Phase::kDecode, DtypeChoice::kAuto}};
  const std::vector<CapabilitySet> workers(2, QuantizedCpu());

  SY_ASSERT_OK_AND_ASSIGN(const auto configs, PlanConfigs(Complete(spec), facts, workers));

  ASSERT_EQ(configs.size(), 4U);
  const auto wire = [&configs](std::size_t i) { return configs[i].trail[1]; };
  EXPECT_EQ(wire(0), "wire dtype bf16: rule 0 (explicit): deployment demo asks for it");
  EXPECT_EQ(wire(1),
            "wire dtype bf16: rule 0 (explicit): deployment demo, phase decode asks for it");
  EXPECT_EQ(wire(2), "wire dtype bf16: rule 0 (explicit): deployment demo asks for it");
  EXPECT_EQ(wire(3),
            "wire dtype fp8: rule 3b (scheme): experts of scheme fp8_block on cpu prefer it");
}

// The trail says which of the four places decided: coordinator, deployment, layer, layer and phase.
TEST(ConfigPlannerTest, TheTrailNamesWhereTheDtypeWasAskedFor) {
  ModelFacts facts = MakeFacts();  // layers 1 and 3
  for (LayerStorage& layer : facts.storage) layer.scheme = QuantScheme::kFp8Block;
  DeploymentSpec spec = MakeSpec();
  spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};
  spec.coordinator_defaults.dispatcher_output_dtype = DtypeChoice::kBf16;
  spec.layers = {{LayerId{3}, {}, DtypeChoice::kBf16},
                 {LayerId{3}, Phase::kDecode, DtypeChoice::kBf16}};
  const std::vector<CapabilitySet> workers(2, QuantizedCpu());

  SY_ASSERT_OK_AND_ASSIGN(const auto configs, PlanConfigs(Complete(spec), facts, workers));

  ASSERT_EQ(configs.size(), 4U);
  const std::string explicitly = "wire dtype bf16: rule 0 (explicit): ";
  const std::string whole = explicitly + "the coordinator's --dispatcher-output-dtype asks for it";
  EXPECT_EQ(configs[0].trail[1], whole);
  EXPECT_EQ(configs[1].trail[1], whole);
  EXPECT_EQ(configs[2].trail[1], explicitly + "deployment demo, layer 3 asks for it");
  EXPECT_EQ(configs[3].trail[1], explicitly + "deployment demo, layer 3, phase decode asks for it");
}

// R2: the flag is a field of the deployment, its source is in the trail, and it is told once a
// plan.
TEST(ConfigPlannerTest, TheDeprecatedFlagOfADeploymentDecidesAndIsTold) {
  ModelFacts facts = MakeFacts();
  for (LayerStorage& layer : facts.storage) layer.scheme = QuantScheme::kFp8Block;
  DeploymentSpec spec = MakeSpec();
  spec.coordinator_defaults.bf16_dispatch_flag = "the coordinator's environment";
  const std::vector<CapabilitySet> workers(2, QuantizedCpu());
  std::vector<Warning> warnings;

  SY_ASSERT_OK_AND_ASSIGN(const auto configs,
                          PlanConfigs(Complete(spec), facts, workers, &warnings));

  for (const DispatchConfig& config : configs) {
    EXPECT_EQ(config.trail[1],
              "wire dtype bf16: rule 1 (bf16_flag): SGLANG_DEEPEP_BF16_DISPATCH (deprecated) is "
              "set by the coordinator's environment");
  }
  ASSERT_EQ(warnings.size(), 1U) << configs.size() << " configs";
  EXPECT_EQ(warnings[0].id, WarningId::kDeprecatedBf16Flag);
  SY_ASSERT_OK(PlanConfigs(Complete(spec), facts, workers, &warnings));
  EXPECT_EQ(warnings.size(), 1U) << "known already";
}

// R24: the other flag changes no layer whose dtype or scheme is known.
TEST(ConfigPlannerTest, TheNpuFlagChangesNoConfigOfALayerWithADtype) {
  CapabilitySet npu = MakeCapabilities();
  npu.device = DeviceKind::kAscend;
  npu.device_profile = "ascend_a3";
  const std::vector<CapabilitySet> workers{npu, MakeCapabilities()};
  for (const auto choice : {DtypeChoice::kAuto, DtypeChoice::kBf16}) {
    DeploymentSpec spec = MakeSpec();
    spec.layers = {{LayerId{1}, {}, choice}};
    SY_ASSERT_OK_AND_ASSIGN(const auto without, PlanConfigs(Complete(spec), MakeFacts(), workers));
    spec.coordinator_defaults.npu_normal_int8_flag = "the coordinator's environment";
    std::vector<Warning> warnings;

    SY_ASSERT_OK_AND_ASSIGN(const auto with,
                            PlanConfigs(Complete(spec), MakeFacts(), workers, &warnings));

    EXPECT_EQ(with, without);
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(warnings[0].id, WarningId::kDeprecatedNpuInt8Flag);
  }
}

// What was asked for and cannot be is refused, naming the layer and what to do.
TEST(ConfigPlannerTest, RefusesDtypesThatTheLayersDoNotTakeAndLayersThatAreNotThere) {
  const ModelFacts facts = FactsWith(QuantScheme::kFp8Block);
  DeploymentSpec spec = MakeSpec();
  const std::vector<CapabilitySet> workers(2, QuantizedCpu());
  spec.layers = {{LayerId{3}, {}, DtypeChoice::kInt8}};

  const absl::Status mismatch = PlanConfigs(Complete(spec), facts, workers).status();
  EXPECT_THAT(mismatch, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(mismatch).at("layer"), "3");

  spec.layers = {{LayerId{2}, {}, DtypeChoice::kBf16}};
  const absl::Status stranger = PlanConfigs(Complete(spec), facts, workers).status();
  EXPECT_THAT(stranger, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_NE(stranger.message().find("layer 2 is not an MoE layer of model m"),
            absl::string_view::npos);
}

// R45
TEST(ConfigPlannerTest, RefusesMoreTokensAndUnevenExpertsWhereTheProfileSaysSo) {
  DeploymentSpec spec = MakeSpec();
  spec.max_tokens_per_step = 1025;
  const std::vector<CapabilitySet> four(4, DeepEp());
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

  EXPECT_THAT(PlanConfigs(Complete(spec), MakeFacts(), four), bad);
  spec.max_tokens_per_step = 1024;
  SY_EXPECT_OK(PlanConfigs(Complete(spec), MakeFacts(), four));
  const std::vector<CapabilitySet> five(5, DeepEp());
  EXPECT_THAT(PlanConfigs(Complete(spec), MakeFacts(), five), bad);

  spec.max_tokens_per_step = 4096;
  const std::vector<CapabilitySet> cpus(5, MakeCapabilities());
  SY_EXPECT_OK(PlanConfigs(Complete(spec), MakeFacts(), cpus)) << "p2p has neither limit";
}

// R62
TEST(ConfigPlannerTest, BoundsTopKInLowLatencyByTheProfile) {
  const auto plan = [](std::int32_t top_k, const CapabilitySet& worker, DispatchMode mode) {
    DeploymentSpec spec = MakeSpec();
    spec.phases = {{Phase::kDecode, mode}};
    return PlanConfigs(Complete(spec), MakeFacts({.experts = 64, .top_k = top_k, .layers = 1}),
                       std::vector<CapabilitySet>(2, worker))
        .status();
  };
  for (const std::int32_t top_k : {9, 10, 11}) {
    SY_EXPECT_OK(plan(top_k, DeepEp(), DispatchMode::kLowLatency));
  }
  const absl::Status over = plan(12, DeepEp(), DispatchMode::kLowLatency);
  EXPECT_THAT(over, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_NE(over.message().find("phase decode"), absl::string_view::npos);
  SY_EXPECT_OK(plan(12, DeepEp(), DispatchMode::kNormal));
  for (const std::int32_t top_k : {12, 16, 32}) {
    SY_EXPECT_OK(plan(top_k, MakeCapabilities(), DispatchMode::kLowLatency));
  }
  EXPECT_THAT(plan(33, MakeCapabilities(), DispatchMode::kLowLatency),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
}

TEST(ConfigPlannerTest, ChecksWhatAWorkerProved) {
  SY_EXPECT_OK(CheckWorkerSuits(MakeFacts(), MakeCapabilities()));

  CapabilitySet worker = MakeCapabilities();
  worker.wire_dtypes = {DispatchDtype::kFp8};
  EXPECT_THAT(CheckWorkerSuits(MakeFacts(), worker),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  worker = MakeCapabilities();
  worker.schemes.clear();
  EXPECT_THAT(CheckWorkerSuits(MakeFacts(), worker),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  worker = MakeCapabilities();
  worker.max_top_k = 3;
  EXPECT_THAT(CheckWorkerSuits(MakeFacts(), worker),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  worker = MakeCapabilities();
  worker.device_profile = "deepep_v1";
  EXPECT_THAT(CheckWorkerSuits(MakeFacts(), worker),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
