#include "services/config/config_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr char kDeployment[] = R"(# A model over four workers.
name: demo
checkpoint: /models/sqlite-moe-7m
min_workers: 4
join_timeout: 1.5s
phases:
  - phase: prefill
  - phase: decode
    mode: low_latency
)";

absl::StatusOr<v1::DeploymentSpec> Read(const std::string& text) {
  v1::DeploymentSpec spec;
  const absl::Status status = ReadConfigText(text, "deployment.yaml", &spec);
  if (!status.ok()) return status;
  return spec;
}

// A file of the test's own, gone at its end.
class TempFile {
 public:
  explicit TempFile(const std::string& text) : path_(dir_.Write("config_file_test.yaml", text)) {}
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  testing::TempDir dir_;
  std::string path_;
};

TEST(ConfigFileTest, ReadsADeployment) {
  SY_ASSERT_OK_AND_ASSIGN(const v1::DeploymentSpec spec, Read(kDeployment));

  EXPECT_EQ(spec.name(), "demo");
  EXPECT_EQ(spec.checkpoint(), "/models/sqlite-moe-7m");
  EXPECT_EQ(spec.min_workers(), 4U);
  EXPECT_EQ(spec.join_timeout().seconds(), 1);
  EXPECT_EQ(spec.join_timeout().nanos(), 500'000'000);
  ASSERT_EQ(spec.phases_size(), 2);
  EXPECT_EQ(spec.phases(0).phase(), v1::PHASE_PREFILL);
  EXPECT_EQ(spec.phases(0).mode(), v1::DISPATCH_MODE_UNSPECIFIED);
  EXPECT_EQ(spec.phases(1).mode(), v1::DISPATCH_MODE_LOW_LATENCY);
}

TEST(ConfigFileTest, ReadsWireDtypesOfDeploymentPhasesAndLayers) {
  SY_ASSERT_OK_AND_ASSIGN(const v1::DeploymentSpec spec, Read(R"(name: demo
dispatcher_output_dtype: fp8
moe_runner_backend: flashinfer_cutedsl
phases:
  - phase: decode
    dispatcher_output_dtype: int8
layers:
  - layer: 61
    dispatcher_output_dtype: bf16
  - layer: 3
    phase: decode
    dispatcher_output_dtype: auto
)"));

  EXPECT_EQ(spec.dispatcher_output_dtype(), v1::DTYPE_CHOICE_FP8);
  EXPECT_EQ(spec.moe_runner_backend(), v1::MOE_RUNNER_BACKEND_FLASHINFER_CUTEDSL);
  EXPECT_EQ(spec.phases(0).dispatcher_output_dtype(), v1::DTYPE_CHOICE_INT8);
  ASSERT_EQ(spec.layers_size(), 2);
  EXPECT_EQ(spec.layers(0).layer(), 61U);
  EXPECT_EQ(spec.layers(0).dispatcher_output_dtype(), v1::DTYPE_CHOICE_BF16);
  EXPECT_EQ(spec.layers(1).phase(), v1::PHASE_DECODE);
  EXPECT_EQ(spec.layers(1).dispatcher_output_dtype(), v1::DTYPE_CHOICE_AUTO);
}

// R10, R11: unknown dtypes and misspelled keys, with what is right.
TEST(ConfigFileTest, RefusesUnknownDtypesAndMisspelledDtypeKeys) {
  for (const char* const key :
       {"dispather_output_dtype", "dispatch_output_dtype", "deepep_dispatch_output_dtype",
        "deepep_dispather_output_dtype", "deepep_dispatcher_output_dtype", "dispather"}) {
    const auto refused = Read(std::string(key) + ": bf16\n");
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_NE(refused.status().message().find("did you mean \"dispatcher_output_dtype\"?"),
              absl::string_view::npos)
        << refused.status();
  }
  const auto unknown = Read("dispatcher_output_dtype: fp9\n");
  EXPECT_EQ(
      unknown.status().message(),
      "deployment.yaml:1: dispatcher_output_dtype: \"fp9\" is not a valid value; did you mean "
      "\"fp8\"? (known: auto, bf16, fp8, int8, nvfp4)");
}

// Only where there is such a key.
TEST(ConfigFileTest, OtherMessagesDoNotHearOfTheDtypeKey) {
  v1::MoeShape shape;
  const absl::Status refused = ReadConfigText("dispather: x\n", "shape.yaml", &shape);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(refused.message().find("dispatcher_output_dtype"), absl::string_view::npos);
}

TEST(ConfigFileTest, ReadsVariablesThatAreSetAndNoOthers) {
  const std::optional<std::string> path = EnvironmentVariable("PATH");

  ASSERT_TRUE(path.has_value());
  EXPECT_NE(path->find("bin"), std::string::npos) << *path;
  EXPECT_EQ(EnvironmentVariable("SWITCHYARD_NO_SUCH_VARIABLE"), std::nullopt);
}

TEST(ConfigFileTest, ReadsJsonAsWell) {
  SY_ASSERT_OK_AND_ASSIGN(
      const v1::DeploymentSpec spec,
      Read(R"({"name": "demo", "checkpoint": "/m", "phases": [{"phase": "mixed"}]})"));

  EXPECT_EQ(spec.name(), "demo");
  EXPECT_EQ(spec.phases(0).phase(), v1::PHASE_MIXED);
}

TEST(ConfigFileTest, ReadsEveryUnitOfTime) {
  const std::vector<std::pair<std::string, std::int64_t>> cases = {
      {"2h", 7'200'000'000'000}, {"10m", 600'000'000'000}, {"20s", 20'000'000'000},
      {"300ms", 300'000'000},    {"250us", 250'000},       {"0s", 0}};
  for (const auto& [text, nanos] : cases) {
    SY_ASSERT_OK_AND_ASSIGN(const auto spec, Read("join_timeout: " + text));
    EXPECT_EQ(spec.join_timeout().seconds() * 1'000'000'000 + spec.join_timeout().nanos(), nanos)
        << text;
  }
}

struct Refusal {
  std::string text;
  std::string message;
  std::string line;
  std::string field;
};

TEST(ConfigFileTest, RefusesWithFileLineAndPath) {
  const std::vector<Refusal> cases = {
      {"name: demo\nmin_worker: 4\n",
       "deployment.yaml:2: min_worker: no such key; did you mean \"min_workers\"? (known: name, "
       "model, checkpoint, phases, min_workers, join_timeout, max_tokens_per_step, "
       "dispatcher_output_dtype, layers, moe_runner_backend, former_model_kept, pools)",
       "2", "min_worker"},
      {"phases:\n- phase: decode\n  mdoe: normal\n",
       "deployment.yaml:3: phases[0].mdoe: no such key; did you mean \"mode\"? (known: phase, "
       "mode, dispatcher_output_dtype)",
       "3", "phases[0].mdoe"},
      {"phases:\n- phase: decode\n- phase: decod\n",
       "deployment.yaml:3: phases[1].phase: \"decod\" is not a valid value; did you mean "
       "\"decode\"? "
       "(known: prefill, decode, mixed)",
       "3", "phases[1].phase"},
      {"phases:\n- phase: unspecified\n",
       "deployment.yaml:2: phases[0].phase: \"unspecified\" is not a valid value (known: prefill, "
       "decode, "
       "mixed)",
       "2", "phases[0].phase"},
      {"min_workers: -1\n",
       "deployment.yaml:1: min_workers: \"-1\" is not a whole number from 0 to 2147483647", "1",
       "min_workers"},
      {"min_workers: 2147483648\n",
       "deployment.yaml:1: min_workers: \"2147483648\" is not a whole number from 0 to 2147483647",
       "1", "min_workers"},
      {"min_workers: 0x10\n",
       "deployment.yaml:1: min_workers: \"0x10\" is not a whole number from 0 to 2147483647", "1",
       "min_workers"},
      {"min_workers: [1]\n", "deployment.yaml:1: min_workers: needs a single value", "1",
       "min_workers"},
      {"join_timeout: 20\n",
       "deployment.yaml:1: join_timeout: \"20\" is not a duration; examples: 20s, 1.5s, 300ms, "
       "10m, 1h",
       "1", "join_timeout"},
      {"join_timeout: -3s\n",
       "deployment.yaml:1: join_timeout: \"-3s\" is not a duration; examples: 20s, 1.5s, 300ms, "
       "10m, 1h",
       "1", "join_timeout"},
      {"join_timeout: {seconds: 3}\n",
       "deployment.yaml:1: join_timeout: \"...\" is not a duration; examples: 20s, 1.5s, 300ms, "
       "10m, 1h",
       "1", "join_timeout"},
      {"name: a\nname: b\n", "deployment.yaml:2: name: is given twice", "2", "name"},
      {"name:\n", "deployment.yaml:1: name: has no value", "1", "name"},
      {"phases: decode\n", "deployment.yaml:1: phases: needs a list", "1", "phases"},
      {"phases: [decode]\n", "deployment.yaml:1: phases[0]: needs keys and values", "1",
       "phases[0]"},
      {"- name: demo\n", "deployment.yaml:1: needs keys and values", "1", ""},
      {"? [a]\n: b\n", "deployment.yaml:1: a key must be a single word", "1", ""},
      {"", "deployment.yaml:1: is empty", "1", ""},
      {"# only a comment\n", "deployment.yaml:1: is empty", "1", ""},
      {"name: a\n---\nname: b\n", "deployment.yaml:3: has more than one document", "3", ""},
  };
  for (const Refusal& refusal : cases) {
    const auto spec = Read(refusal.text);

    EXPECT_THAT(spec, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_EQ(spec.status().message(), refusal.message);
    const auto metadata = MetadataOf(spec.status());
    EXPECT_EQ(metadata.count("line") > 0 ? metadata.at("line") : "", refusal.line);
    EXPECT_EQ(metadata.count("field") > 0 ? metadata.at("field") : "?", refusal.field);
  }
}

TEST(ConfigFileTest, BrokenYamlNamesTheLine) {
  const auto spec = Read("name: demo\nphases: [\n");

  EXPECT_THAT(spec, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(spec.status().message().substr(0, 32), "deployment.yaml:3: is not YAML: ");
}

// Messages take UTF-8 only, and a library would print its own lines about it.
TEST(ConfigFileTest, BytesThatAreNotUtf8NameTheLine) {
  const auto spec = Read("name: demo\n# caf\xe9\ncheckpoint: /m\n");

  EXPECT_THAT(spec, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(spec.status().message(),
            "deployment.yaml:2: has a byte that is not UTF-8 text; save the file as UTF-8");
}

TEST(ConfigFileTest, ReadsDeploymentsOfSeveralDocuments) {
  const TempFile file(std::string(kDeployment) + "---\nname: second\ncheckpoint: /m2\n");

  SY_ASSERT_OK_AND_ASSIGN(const auto deployments, ReadDeployments(file.path()));

  ASSERT_EQ(deployments.size(), 2U);
  EXPECT_EQ(deployments[0].name(), "demo");
  EXPECT_EQ(deployments[1].name(), "second");
}

// An editor or a generator leaves separators without a document.
TEST(ConfigFileTest, EmptyDocumentsAreNone) {
  const TempFile file("---\nname: one\n---\n---\nname: two\n---\n");

  SY_ASSERT_OK_AND_ASSIGN(const auto deployments, ReadDeployments(file.path()));

  ASSERT_EQ(deployments.size(), 2U);
  EXPECT_EQ(deployments[0].name(), "one");
  EXPECT_EQ(deployments[1].name(), "two");
}

TEST(ConfigFileTest, ANameThatIsGivenTwiceIsRefusedWithBothLines) {
  const TempFile file("name: one\n---\nname: two\n---\ncheckpoint: /m\nname: one\n");

  const auto deployments = ReadDeployments(file.path());

  EXPECT_THAT(deployments, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(deployments.status().message(),
            file.path() +
                ":6: name: \"one\" is the name of the deployment at line 1 already; give "
                "each a name of its own");
}

TEST(ConfigFileTest, ARelativeCheckpointBelongsToTheFilesFolder) {
  const TempFile file(
      "name: a\ncheckpoint: ../models/toy\n---\nname: b\ncheckpoint: /models/toy\n"
      "---\nname: c\ncheckpoint: 'synthetic:hidden=64'\n");

  SY_ASSERT_OK_AND_ASSIGN(const auto deployments, ReadDeployments(file.path()));

  const std::filesystem::path folder = std::filesystem::path(file.path()).parent_path();
  EXPECT_EQ(deployments[0].checkpoint(), (folder.parent_path() / "models/toy").string());
  EXPECT_EQ(deployments[1].checkpoint(), "/models/toy");
  EXPECT_EQ(deployments[2].checkpoint(), "synthetic:hidden=64");
}

TEST(ConfigFileTest, AFileThatCannotBeReadIsNamed) {
  for (const std::string& path : {std::string("/no/such/file.yaml"), ::testing::TempDir()}) {
    const auto config = ReadDeployments(path);
    EXPECT_THAT(config, FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig));
    EXPECT_EQ(MetadataOf(config.status()).at("file"), path);
  }
}

TEST(ConfigFileTest, RefusesAFileThatIsTooLarge) {
  const TempFile file(std::string((1 << 20) + 5, '#'));

  EXPECT_THAT(ReadDeployments(file.path()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(ConfigFileTest, DamagedFilesNeverCrash) {
  const std::uint64_t seed = 8;
  SeededRng rng(seed);
  for (int round = 0; round < 5000; ++round) {
    std::string text = kDeployment;
    for (std::uint64_t i = 1 + rng.Below(3); i > 0; --i) {
      const std::size_t at = rng.Below(text.size());
      switch (rng.Below(3)) {
        case 0:
          text[at] = static_cast<char>(rng.Next());
          break;
        case 1:
          text.erase(at, 1 + rng.Below(20));
          break;
        default:
          text.insert(at, 1, "{}[]:-#&*!|>'\"%@`?\n\t,"[rng.Below(22)]);
      }
    }

    const auto spec = Read(text);

    if (!spec.ok()) {
      ASSERT_THAT(spec, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
          << "seed " << seed << " round " << round << "\n"
          << text;
    }
  }
}

}  // namespace
}  // namespace switchyard
