#include "coordinator/spec/deployment.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

const auto kBadConfig = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

DeploymentSpec GoodSpec() {
  DeploymentSpec spec;
  spec.name = "demo";
  spec.checkpoint = "/models/sqlite-moe-7m/";
  return spec;
}

ModelFacts SmallFacts(std::int32_t experts = 3) {
  ModelFacts facts;
  facts.shape = {.hidden = 8, .intermediate = 4, .experts = experts, .top_k = 2};
  facts.layers = {LayerId{1}, LayerId{3}};
  facts.storage.resize(2);
  for (const LayerId layer : facts.layers) {
    for (std::int32_t e = 0; e < experts; ++e) {
      for (const Projection p : kAllProjections) {
        facts.manifest.tensors.push_back({layer, ExpertId{e}, p, Sha256("tensor")});
      }
    }
  }
  return facts;
}

TEST(DeploymentSpecTest, FillsInDefaults) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec spec, CompleteSpec(GoodSpec()));

  EXPECT_EQ(spec.model, "sqlite-moe-7m");
  EXPECT_EQ(spec.min_workers, 1);
  EXPECT_EQ(spec.join_timeout, std::chrono::seconds(20));
  EXPECT_EQ(spec.max_tokens_per_step, 512);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    EXPECT_TRUE(spec.Serves(phase));
  }
}

TEST(DeploymentSpecTest, NamesSyntheticModels) {
  DeploymentSpec asked = GoodSpec();
  asked.checkpoint = "synthetic:hidden=64,intermediate=32,experts=16,top_k=4";

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec spec, CompleteSpec(asked));

  EXPECT_EQ(spec.model, "synthetic");
}

TEST(DeploymentSpecTest, KeepsWhatWasAskedForAndOrdersPhases) {
  DeploymentSpec asked = GoodSpec();
  asked.model = "other";
  asked.phases = {{Phase::kDecode, DispatchMode::kNormal}, {Phase::kPrefill, {}}};
  asked.min_workers = 4;
  asked.join_timeout = std::chrono::seconds(3);
  asked.max_tokens_per_step = 64;

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec spec, CompleteSpec(asked));

  EXPECT_EQ(spec.model, "other");
  EXPECT_EQ(spec.phases, (std::vector<PhaseSpec>{{Phase::kPrefill, {}},
                                                 {Phase::kDecode, DispatchMode::kNormal}}));
  EXPECT_FALSE(spec.Serves(Phase::kMixed));
  EXPECT_EQ(spec.min_workers, 4);
  EXPECT_EQ(spec.join_timeout, std::chrono::seconds(3));
  EXPECT_EQ(spec.max_tokens_per_step, 64);
}

TEST(DeploymentSpecTest, RefusesEachBadFieldByName) {
  struct Case {
    const char* field;
    void (*spoil)(DeploymentSpec&);
  };
  const Case cases[] = {
      {"name", [](DeploymentSpec& s) { s.name = ""; }},
      {"name", [](DeploymentSpec& s) { s.name = "a b"; }},
      {"name", [](DeploymentSpec& s) { s.name = std::string(129, 'a'); }},
      {"checkpoint", [](DeploymentSpec& s) { s.checkpoint = ""; }},
      {"model", [](DeploymentSpec& s) { s.model = "a/b"; }},
      {"model", [](DeploymentSpec& s) { s.checkpoint = "///"; }},
      {"phases",
       [](DeploymentSpec& s) {
         s.phases = {{Phase::kMixed, {}}, {Phase::kMixed, {}}};
       }},
      {"min_workers", [](DeploymentSpec& s) { s.min_workers = -1; }},
      {"min_workers", [](DeploymentSpec& s) { s.min_workers = 100'000; }},
      {"join_timeout", [](DeploymentSpec& s) { s.join_timeout = std::chrono::seconds(-1); }},
      {"join_timeout", [](DeploymentSpec& s) { s.join_timeout = std::chrono::hours(25); }},
      {"former_model_kept",
       [](DeploymentSpec& s) { s.former_model_kept = std::chrono::seconds(-1); }},
      {"former_model_kept",
       [](DeploymentSpec& s) { s.former_model_kept = std::chrono::hours(25); }},
      {"pools",
       [](DeploymentSpec& s) {
         s.pools = {"a", "b", "a"};
       }},
      {"pools", [](DeploymentSpec& s) { s.pools = {"a/b"}; }},
      {"pools", [](DeploymentSpec& s) { s.pools = {""}; }},
      {"pools",
       [](DeploymentSpec& s) {
         for (int i = 0; i < 65; ++i) s.pools.push_back(absl::StrCat("p", i));
       }},
      {"max_tokens_per_step", [](DeploymentSpec& s) { s.max_tokens_per_step = -5; }},
      {"layers",
       [](DeploymentSpec& s) {
         s.layers = {{LayerId{-1}, {}, DtypeChoice::kBf16}};
       }},
      {"layers",
       [](DeploymentSpec& s) {
         s.layers = {{LayerId{3}, Phase::kDecode, DtypeChoice::kBf16},
                     {LayerId{3}, Phase::kDecode, DtypeChoice::kFp8}};
       }},
  };
  for (const Case& c : cases) {
    DeploymentSpec spec = GoodSpec();
    c.spoil(spec);

    const auto result = CompleteSpec(spec);

    ASSERT_THAT(result, kBadConfig) << c.field;
    EXPECT_EQ(MetadataOf(result.status()).at("field"), c.field);
  }
}

TEST(ModelFactsTest, AcceptsACompleteManifest) {
  SY_EXPECT_OK(CheckFacts(SmallFacts()));
  EXPECT_EQ(SmallFacts().ExpertBytes(), 3 * 8 * 4 * 2);
}

// Of schemes with groups each output has an FP32 scale for every 128 of K; the largest layer
// counts.
TEST(ModelFactsTest, CountsTheScalesOfGroups) {
  ModelFacts facts = SmallFacts();
  facts.shape.hidden = 300;
  facts.shape.intermediate = 140;
  EXPECT_EQ(facts.ExpertBytes(), 3 * 300 * 140 * 2);

  facts.storage.back().scheme = QuantScheme::kW4Afp8;

  EXPECT_EQ(facts.ExpertBytes(), 3 * 300 * 140 * 2 + 4 * (2 * 140 * 3 + 300 * 2));
}

TEST(ModelFactsTest, RefusesHolesDisorderAndStrangers) {
  const auto bad = FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint);
  ModelFacts facts = SmallFacts();
  facts.manifest.tensors.pop_back();
  EXPECT_THAT(CheckFacts(facts), bad);
  facts = SmallFacts();
  facts.manifest.tensors.push_back(facts.manifest.tensors.back());
  EXPECT_THAT(CheckFacts(facts), bad);
  facts = SmallFacts();
  std::swap(facts.manifest.tensors[0], facts.manifest.tensors[1]);
  EXPECT_THAT(CheckFacts(facts), bad);
  facts = SmallFacts();
  std::swap(facts.layers[0], facts.layers[1]);
  EXPECT_THAT(CheckFacts(facts), bad);
  facts = SmallFacts();
  facts.layers.clear();
  EXPECT_THAT(CheckFacts(facts), bad);
  facts = SmallFacts();
  facts.shape.top_k = 4;
  EXPECT_THAT(CheckFacts(facts), bad);
}

// R1: what the coordinator was started with counts where the deployment says nothing.
TEST(DeploymentSpecTest, TheCoordinatorsDtypeCountsWhereTheDeploymentSaysNothing) {
  DeploymentSpec spec = GoodSpec();
  spec.coordinator_defaults.dispatcher_output_dtype = DtypeChoice::kFp8;

  const std::vector<DtypeOverride> silent = spec.DtypeOverrides();
  spec.dispatcher_output_dtype = DtypeChoice::kInt8;
  const std::vector<DtypeOverride> spoken = spec.DtypeOverrides();
  spec.dispatcher_output_dtype = DtypeChoice::kAuto;
  const std::vector<DtypeOverride> taken_back = spec.DtypeOverrides();

  ASSERT_EQ(silent.size(), 1U);
  EXPECT_EQ(silent[0].dtype, DispatchDtype::kFp8);
  EXPECT_EQ(silent[0].source, "the coordinator's --dispatcher-output-dtype");
  ASSERT_EQ(spoken.size(), 1U);
  EXPECT_EQ(spoken[0].dtype, DispatchDtype::kInt8);
  EXPECT_EQ(spoken[0].source, "deployment demo");
  EXPECT_TRUE(taken_back.empty());
}

}  // namespace
}  // namespace switchyard
