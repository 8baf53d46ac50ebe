#include "coordinator/spec/deployment_record.h"

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

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

// What the coordinator's defaults take at the end of a record when none is set.
constexpr std::size_t kDefaultsBytes = 1 + 4 + 4;
// Of SmallFacts: a count, and for each of its two layers five bytes and an empty text.
constexpr std::size_t kStorageBytes = 4 + 2 * (5 + 4);
// The runner of the experts.
constexpr std::size_t kRunnerBytes = 1;
constexpr std::size_t kKeyBytes = 32;
// For how long a former model is kept.
constexpr std::size_t kPoolsBytes = 4;  // of no pools
constexpr std::size_t kKeptBytes = 8;
constexpr std::size_t kMarkBytes = 1;  // of a deletion
// A deletion that does not wait, and a revision.
constexpr std::size_t kRevisionBytes = 1 + 8;

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
  record.deleting_at_once = true;
  record.revision = 7;

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
  bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes - kMarkBytes - kKeptBytes - kKeyBytes -
               kRunnerBytes - kStorageBytes - kDefaultsBytes - added);
  bytes[0] = 1;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
  for (const char format : {'\0', '\2', '\3', '\4', '\5', '\6', '\7', '\10'}) {
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
    bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes - kMarkBytes - kKeptBytes - kKeyBytes -
                 kRunnerBytes - kStorageBytes - kDefaultsBytes);
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
  bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes - kMarkBytes - kKeptBytes - kKeyBytes);
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
  bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes - kMarkBytes - kKeptBytes);
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
  bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes - kMarkBytes);
  bytes[0] = 5;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
}

// A store of a coordinator without revisions, which did not keep whether a deletion waits.
TEST(DeploymentRecordTest, ReadsTheFormatBeforeRevisions) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts();
  record.deleting = true;
  std::string bytes = CanonicalBytes(record);
  bytes.resize(bytes.size() - kPoolsBytes - kRevisionBytes);
  bytes[0] = 6;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
  EXPECT_EQ(parsed.revision, 0U);
}

// A store of a coordinator that knew no pools.
TEST(DeploymentRecordTest, ReadsTheFormatBeforePools) {
  DeploymentRecord record;
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(GoodSpec()));
  record.facts = SmallFacts();
  record.revision = 3;
  std::string bytes = CanonicalBytes(record);
  bytes.resize(bytes.size() - kPoolsBytes);
  bytes[0] = 7;

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(bytes));

  EXPECT_EQ(parsed, record);
}

TEST(DeploymentRecordTest, KeepsPools) {
  DeploymentRecord record;
  DeploymentSpec spec = GoodSpec();
  spec.pools = {"decode", "spare"};
  SY_ASSERT_OK_AND_ASSIGN(record.spec, CompleteSpec(spec));
  record.facts = SmallFacts();

  SY_ASSERT_OK_AND_ASSIGN(const auto parsed, ParseDeploymentRecord(CanonicalBytes(record)));

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
