#include "coordinator/plan_builder.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/placement/contiguous.h"
#include "core/rng.h"
#include "model/model_config.h"
#include "model/presets.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

DeploymentRecord Record() { return {*CompleteSpec(testing::MakeSpec()), testing::MakeFacts()}; }

Candidate Make(const std::string& id, std::int64_t weight_bytes_max = 0) {
  Candidate candidate;
  candidate.capabilities = testing::MakeCapabilities(weight_bytes_max);
  candidate.worker = {id, {1, 1}, id + ":1", DeviceKind::kCpu, "scalar"};
  return candidate;
}

std::string Ids(const Plan& plan) {
  std::string ids;
  for (const PlanWorker& worker : plan.workers) ids += worker.id;
  return ids;
}

const ContiguousPlacement kPolicy;

TEST(PlanBuilderTest, MakesAValidPlanInAnyOrderOfCandidates) {
  std::vector<Candidate> candidates = {Make("c"), Make("a"), Make("b")};
  SY_ASSERT_OK_AND_ASSIGN(PlanProposal first, BuildPlan(Record(), candidates, kPolicy));
  std::reverse(candidates.begin(), candidates.end());

  SY_ASSERT_OK_AND_ASSIGN(const PlanProposal second, BuildPlan(Record(), candidates, kPolicy));

  EXPECT_EQ(first.plan, second.plan);
  EXPECT_EQ(Ids(first.plan), "abc");
  EXPECT_EQ(first.plan.deployment, "demo");
  EXPECT_EQ(first.plan.manifest, testing::MakeFacts().manifest.Hash());
  first.plan.epoch = Epoch{1};
  SY_EXPECT_OK(ValidatePlan(first.plan));
}

TEST(PlanBuilderTest, LeavesOutTheSmallestUntilEveryShareFits) {
  // 6144 bytes: 1536 on each of 4, 2112 at most on each of 3, 3072 on each of 2.
  const std::vector<Candidate> candidates = {Make("a", 2200), Make("b", 100), Make("c", 2200),
                                             Make("d")};

  SY_ASSERT_OK_AND_ASSIGN(const PlanProposal proposal, BuildPlan(Record(), candidates, kPolicy));

  EXPECT_EQ(Ids(proposal.plan), "acd");
  ASSERT_EQ(proposal.left_out.size(), 1U);
  EXPECT_EQ(proposal.left_out[0].substr(0, 3), "b: ");
}

TEST(PlanBuilderTest, CountsWhatOtherDeploymentsUse) {
  std::vector<Candidate> candidates = {Make("a", 4000), Make("b", 4000)};
  SY_ASSERT_OK(BuildPlan(Record(), candidates, kPolicy));
  candidates[0].used_bytes = 4000;

  EXPECT_THAT(BuildPlan(Record(), candidates, kPolicy),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

TEST(PlanBuilderTest, PrefersWorkersThatServeWhereNotAllAreNeeded) {
  DeploymentRecord record = Record();
  record.facts = testing::MakeFacts({.experts = 2, .top_k = 1});
  std::vector<Candidate> candidates = {Make("a"), Make("b"), Make("c")};
  candidates[1].serves = candidates[2].serves = true;

  SY_ASSERT_OK_AND_ASSIGN(const PlanProposal proposal, BuildPlan(record, candidates, kPolicy));

  EXPECT_EQ(Ids(proposal.plan), "bc");
}

TEST(PlanBuilderTest, SaysWhyNobodyWillDo) {
  EXPECT_THAT(BuildPlan(Record(), {}, kPolicy),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(BuildPlan(Record(), {Make("a", 6000)}, kPolicy),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  Candidate odd = Make("a");
  odd.capabilities.schemes.clear();
  EXPECT_THAT(BuildPlan(Record(), {odd}, kPolicy),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// A model in `scheme`, rows as `dtype`, and two workers that can do all of it.
struct Pool {
  Pool(QuantScheme scheme, DtypeChoice dtype) {
    for (LayerStorage& storage : record.facts.storage) storage.scheme = scheme;
    record.spec.dispatcher_output_dtype = dtype;
    for (Candidate& candidate : candidates) {
      candidate.capabilities.schemes = {scheme};
      candidate.capabilities.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8,
                                            DispatchDtype::kInt8};
    }
  }
  DeploymentRecord record = Record();
  std::vector<Candidate> candidates = {Make("a"), Make("b")};
};

// Equal room: who has to go is who cannot, not who comes last.
TEST(PlanBuilderTest, WorkersWhoseEdgeRefusesAreLeftOutAndTheOthersServe) {
  Pool kinds(QuantScheme::kW4A8Int8, DtypeChoice::kAuto);
  kinds.candidates[0].worker.device = DeviceKind::kCuda;
  kinds.candidates[0].capabilities.device = DeviceKind::kCuda;
  kinds.candidates[0].capabilities.device_profile = "cuda_sm90";
  Pool codecs(QuantScheme::kW8A8Int8, DtypeChoice::kInt8);
  std::erase(codecs.candidates[0].capabilities.wire_dtypes, DispatchDtype::kInt8);
  for (const Pool& pool : {kinds, codecs}) {
    SY_ASSERT_OK_AND_ASSIGN(const PlanProposal proposal,
                            BuildPlan(pool.record, pool.candidates, kPolicy));

    EXPECT_EQ(Ids(proposal.plan), "b");
    ASSERT_EQ(proposal.left_out.size(), 1U);
    EXPECT_EQ(proposal.left_out[0].substr(0, 3), "a: ");
  }
}

TEST(PlanBuilderTest, FindsTheLargestSetThatFits) {
  SeededRng rng(17);
  const DeploymentRecord record = Record();
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> candidates;
    for (int w = 0; w < 5; ++w) {
      const auto room = static_cast<std::int64_t>(1 + rng.Below(5000));
      candidates.push_back(Make(std::string(1, static_cast<char>('a' + w)), room));
    }
    std::size_t best = 0;
    for (unsigned mask = 1; mask < 32; ++mask) {
      PlacementRequest request{record.facts.layers, 16, 192, {}};
      for (unsigned w = 0; w < 5; ++w) {
        if ((mask >> w & 1U) == 0) continue;
        request.workers.push_back({"", candidates[w].capabilities.weight_bytes_max});
      }
      if (kPolicy.Place(request).ok()) best = std::max(best, request.workers.size());
    }

    const auto proposal = BuildPlan(record, candidates, kPolicy);

    const std::size_t found = proposal.ok() ? proposal->plan.workers.size() : 0;
    EXPECT_EQ(found, best) << "round " << round;
  }
}

TEST(PlanBuilderTest, PrepareBringsTheHashesOfTheWorkersOwnExperts) {
  SY_ASSERT_OK_AND_ASSIGN(PlanProposal proposal,
                          BuildPlan(Record(), {Make("a"), Make("b")}, kPolicy));
  proposal.plan.epoch = Epoch{1};

  const Prepare prepare =
      PrepareFor(proposal.plan, HashOf(proposal.plan), Record(), WorkerOrdinal{1});

  ASSERT_EQ(prepare.tensors.size(), 2U * 8U * 3U);
  for (const TensorHash& tensor : prepare.tensors) EXPECT_GE(tensor.expert.value, 8);
  EXPECT_EQ(ExpertsOn(proposal.plan, WorkerOrdinal{1}), 2 * 8);
}

// The config.json of Qwen3.5-397B-A17B, as far as its experts go.
constexpr char kQwen35[] = R"({"model_type": "qwen3_5_moe",
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "text_config": {"model_type": "qwen3_5_moe_text", "hidden_act": "silu", "hidden_size": 4096,
    "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 60,
    "shared_expert_intermediate_size": 1024}})";

// Its NVFP4 checkpoint: 60 calibrated layers, one MTP layer in BF16. Tensors exist by their hashes.
ModelFacts Qwen35Facts() {
  const auto config = ParseModelConfig(kQwen35);
  EXPECT_TRUE(config.ok()) << config.status();
  ModelFacts facts;
  facts.shape = ShapeOf(*config);
  facts.layers = MoeLayersOf(*config);
  for (const LayerId layer : facts.layers) {
    LayerStorage& storage = facts.storage.emplace_back();
    if (layer.value >= config->layers) {
      storage.role = LayerRole::kDraft;
    } else {
      storage.scheme = QuantScheme::kNvfp4;
      storage.quant_config.emplace().input_global_scale = 524.25F;
    }
    for (std::int32_t e = 0; e < facts.shape.experts; ++e) {
      for (const Projection p : kAllProjections) {
        facts.manifest.tensors.push_back(
            {layer, ExpertId{e}, p,
             Sha256(absl::StrCat(layer.value, "/", e, "/", static_cast<int>(p)))});
      }
    }
  }
  return facts;
}

// R73: the whole model, all layers in their real sizes, on GPUs of 100 GiB that prove NVFP4.
TEST(PlanBuilderTest, PlansQwen35OnAsManyWorkersAsItsWeightsNeed) {
  constexpr std::int64_t kRoom = std::int64_t{100} << 30;
  DeploymentSpec spec = testing::MakeSpec();
  spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};
  const DeploymentRecord record{*CompleteSpec(spec), Qwen35Facts()};
  SY_ASSERT_OK(CheckFacts(record.facts));
  ASSERT_EQ(record.facts.shape, FindModelPreset("qwen3.5-397b-a17b")->shape);
  ASSERT_EQ(record.facts.layers.size(), 61U);
  std::vector<Candidate> candidates;
  for (int w = 0; w < 8; ++w) {
    Candidate gpu = Make(absl::StrCat("gpu", w), kRoom);
    gpu.worker.device = DeviceKind::kCuda;
    gpu.capabilities.device = DeviceKind::kCuda;
    gpu.capabilities.device_profile = "cuda_sm100";
    gpu.capabilities.wire_dtypes.push_back(DispatchDtype::kNvfp4);
    gpu.capabilities.schemes.push_back(QuantScheme::kNvfp4);
    candidates.push_back(gpu);
  }

  SY_ASSERT_OK_AND_ASSIGN(PlanProposal proposal, BuildPlan(record, candidates, kPolicy));

  proposal.plan.epoch = Epoch{1};
  SY_EXPECT_OK(ValidatePlan(proposal.plan));
  ASSERT_EQ(proposal.plan.workers.size(), 8U) << "786 GB of values, 98 GB on each";
  const std::int64_t expert_bytes = record.facts.ExpertBytes();
  for (std::int32_t w = 0; w < 8; ++w) {
    EXPECT_EQ(ExpertsOn(proposal.plan, WorkerOrdinal{w}), 61 * 64);
    EXPECT_LE(61 * 64 * expert_bytes, kRoom);
  }
  std::set<LayerId> planned;
  for (const DispatchConfig& config : proposal.plan.configs) {
    const bool base = config.layer.value < 60;
    planned.insert(config.layer);
    EXPECT_EQ(config.scheme, base ? QuantScheme::kNvfp4 : QuantScheme::kNone);
    const bool decode = config.phase == Phase::kDecode;
    EXPECT_EQ(config.mode, decode ? DispatchMode::kLowLatency : DispatchMode::kNormal);
    EXPECT_EQ(config.format(), base && decode ? kNvfp4Format : kBf16Format)
        << "layer " << config.layer.value;
    EXPECT_EQ(config.global_scale, base && decode ? 524.25F : 1.0F);
  }
  EXPECT_EQ(planned.size(), 61U);

  candidates.pop_back();
  EXPECT_THAT(BuildPlan(record, candidates, kPolicy),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

}  // namespace
}  // namespace switchyard
