#include "coordinator/deployment.h"

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

// What the coordinator's defaults take at the end of a record when none is set.
constexpr std::size_t kDefaultsBytes = 1 + 4 + 4;
// Of SmallFacts: a count, and for each of its two layers five bytes and an empty text.
constexpr std::size_t kStorageBytes = 4 + 2 * (5 + 4);
// The runner of the experts.
constexpr std::size_t kRunnerBytes = 1;
constexpr std::size_t kKeyBytes = 32;
// For how long a former model is kept.
constexpr std::size_t kKeptBytes = 8;
constexpr std::size_t kMarkBytes = 1;  // of a deletion

TEST(DeploymentRecordTest, RoundTrips) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.spec.phases[1].mode = DispatchMode::kLowLatency;
  record.spec.phases[2].dispatcher_output_dtype = DtypeChoice::kAuto;
  record.spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  record.spec.layers = {{LayerId{1}, {}, DtypeChoice::kBf16},
                        {LayerId{1}, Phase::kDecode, DtypeChoice::kAuto}};
  record.spec.coordinator_defaults = {DtypeChoice::kInt8, "the environment", ""};
  record.spec.moe_runner_backend = RunnerBackend::kCutlass;
  record.facts = SmallFacts();
  SeededRng rng(8);
  record.grant_key = GrantKey::Random(&rng);
  record.deleting = true;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(CanonicalBytes(record)));

  EXPECT_EQ(parsed, record);
}

// A store of a coordinator from before wire dtypes could be asked for.
TEST(DeploymentRecordTest, ReadsTheFormatBeforeWireDtypes) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts();
  std::string bytes = CanonicalBytes(record);
  const std::size_t added = 1 + 4 + record.spec.phases.size() + 4;
  bytes.resize(bytes.size() - kMarkBytes - kKeptBytes - kKeyBytes - kRunnerBytes - kStorageBytes -
               kDefaultsBytes - added);
  bytes[0] = 1;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
  for (const char format : {'\0', '\2', '\3', '\4', '\5', '\6', '\7'}) {
    bytes[0] = format;
    EXPECT_THAT(ParseDeploymentRecord(bytes),
                FailsWith(absl::StatusCode::kDataLoss, Reason::kStoreWrite));
  }
}

// A store of a coordinator without defaults of its own, where "auto" stood for "does not say".
TEST(DeploymentRecordTest, ReadsTheFormatBeforeTheCoordinatorsDefaults) {
  for (const auto choice : {DtypeChoice::kAuto, DtypeChoice::kFp8}) {
    DeploymentRecord record;
    SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
    record.spec.dispatcher_output_dtype = choice;
    record.spec.layers = {{LayerId{1}, {}, DtypeChoice::kAuto}};
    record.facts = SmallFacts();
    std::string bytes = CanonicalBytes(record);
    bytes.resize(bytes.size() - kMarkBytes - kKeptBytes - kKeyBytes - kRunnerBytes - kStorageBytes -
                 kDefaultsBytes);
    bytes[0] = 2;

    SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

    if (choice == DtypeChoice::kAuto) record.spec.dispatcher_output_dtype.reset();
    EXPECT_EQ(parsed, record);
  }
}

// A store of a coordinator that did not sign grants.
TEST(DeploymentRecordTest, ReadsTheFormatBeforeGrantKeys) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts();
  std::string bytes = CanonicalBytes(record);
  bytes.resize(bytes.size() - kMarkBytes - kKeptBytes - kKeyBytes);
  bytes[0] = 3;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
  EXPECT_TRUE(parsed.grant_key.empty());
}

// A store of a coordinator that ended a former model at once.
TEST(DeploymentRecordTest, ReadsTheFormatBeforeFormerModelsWereKept) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts();
  std::string bytes = CanonicalBytes(record);
  bytes.resize(bytes.size() - kMarkBytes - kKeptBytes);
  bytes[0] = 4;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
}

// A store of a coordinator that could not delete.
TEST(DeploymentRecordTest, ReadsTheFormatBeforeDeletions) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.spec.former_model_kept = std::chrono::minutes(5);
  record.facts = SmallFacts();
  std::string bytes = CanonicalBytes(record);
  bytes.resize(bytes.size() - kMarkBytes);
  bytes[0] = 5;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
}

TEST(DeploymentRecordTest, RefusesTruncationAndSurvivesDamage) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts(1);
  const std::string bytes = CanonicalBytes(record);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ParseDeploymentRecord(absl::string_view(bytes).substr(0, size)),
                FailsWith(absl::StatusCode::kDataLoss, Reason::kStoreWrite));
  }
  SeededRng rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    ParseDeploymentRecord(damaged).IgnoreError();  // Any answer but a crash.
  }
}

}  // namespace
}  // namespace switchyard
