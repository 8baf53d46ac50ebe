#include "ctl/commands.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/json.h"
#include "ctl/syctl.h"
#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CommandsTest : public ::testing::Test {
 protected:
  // What `words` print, in the table form unless they say otherwise; `status_` is how it ended.
  std::string Run(const std::vector<std::string>& words) {
    const ParsedCommandLine parsed = ParseCommandLine(words);
    if (!parsed.line.has_value()) return parsed.text;
    CoordinatorClient client(coordinator_.endpoint(), std::chrono::seconds(20));
    SyctlResult result;
    status_ = RunCommand(*parsed.line, client,
                         {parsed.line->output.value_or(OutputFormat::kTable), 0}, &result);
    exit_code_ = result.exit_code;
    return result.out;
  }
  Json RunJson(std::vector<std::string> words) {
    words.insert(words.end(), {"-o", "json"});
    return Json::parse(Run(words));
  }

  ScriptedCoordinator coordinator_;
  absl::Status status_;
  int exit_code_ = 0;
};

TEST_F(CommandsTest, GetPrintsATableOfEachKind) {
  EXPECT_THAT(Run({"get", "deployments"}), StartsWith("NAME   MODEL"));
  EXPECT_THAT(Run({"get", "models"}), StartsWith("NAME  MOE LAYERS"));
  EXPECT_THAT(Run({"get", "workers"}), StartsWith("ID  STATE"));
  EXPECT_THAT(Run({"get", "layers"}), StartsWith("LAYER  EXPERTS"));
  EXPECT_THAT(Run({"get", "plan"}), StartsWith("deployment local, model toy, epoch 3"));
  SY_EXPECT_OK(status_);
}

TEST_F(CommandsTest, GetPrintsJsonOfEachKind) {
  EXPECT_EQ(RunJson({"get", "deployments"})["deployments"][0]["spec"]["name"], "local");
  EXPECT_EQ(RunJson({"get", "models"})["models"][0]["name"], "toy");
  EXPECT_EQ(RunJson({"get", "workers"})["workers"][1]["id"], "w1");
  EXPECT_EQ(RunJson({"get", "plan"})["plan"]["epoch"], 3);
  const Json layers = RunJson({"get", "layers"});
  EXPECT_EQ(layers["epoch"], 3);
  EXPECT_EQ(layers["layers"][2]["layer"], 4);
  EXPECT_EQ(layers["layers"][2]["experts"].size(), 5U);
  EXPECT_EQ(layers["layers"][2]["configs"][1]["mode"], "low_latency");
  EXPECT_EQ(layers["layers"][2]["configs"].size(), 2U);
}

TEST_F(CommandsTest, GetPrintsOneOfAKind) {
  EXPECT_THAT(Run({"get", "worker", "w1"}),
              ::testing::AllOf(HasSubstr("w1"), Not(HasSubstr("w0"))));
  EXPECT_THAT(Run({"get", "deployment", "local"}), HasSubstr("local"));
  EXPECT_EQ(Run({"get", "deployments/local"}), Run({"get", "deployment", "local"}));
  EXPECT_THAT(Run({"get", "models", "toy"}), HasSubstr("toy"));
  EXPECT_THAT(Run({"get", "plan", "local"}), StartsWith("deployment local"));
  SY_EXPECT_OK(status_);
  EXPECT_EQ(RunJson({"get", "workers", "w0"})["workers"].size(), 1U);
  EXPECT_EQ(Run({"get", "worker", "w7"}), "");
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("unknown worker w7; known: w0, w1"));
}

TEST_F(CommandsTest, GetPrintsRevisions) {
  EXPECT_EQ(Run({"get", "revisions", "local"}),
            "REVISION  STATE    EPOCH  APPLIED                   MODEL  CHECKPOINT   WEIGHTS       "
            "REMARK\n"
            "1         former   1      -                         toy    /models/toy  e59625a82249  "
            "-\n"
            "2         refused  -      2023-11-14T22:13:20.250Z  other  /models/toy  e59625a82249  "
            "layer 1 takes no fp8\n"
            "3         serving  3      -                         toy    /models/toy  e59625a82249  "
            "rollback to 1\n");
  const Json json = RunJson({"get", "revisions", "--deployment", "local"});
  EXPECT_EQ(json["revisions"][1]["state"], "refused");
  EXPECT_EQ(json["revisions"][1]["applied"], "2023-11-14T22:13:20.250Z");
  SY_EXPECT_OK(status_);
  coordinator_.revisions.clear_revisions();
  EXPECT_EQ(Run({"get", "revisions"}), "Deployment local has no revision so far.\n");
  Run({"get", "revisions", "other"});
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(CommandsTest, GetPrintsEvents) {
  EXPECT_EQ(Run({"get", "events"}), "Nothing has happened so far.\n");
  *coordinator_.events.add_events() = switchyard::testing::EventMessage(1, "local");
  *coordinator_.events.add_events() = switchyard::testing::EventMessage(2, "w0");

  EXPECT_EQ(
      Run({"get", "events"}),
      "LAST                      TYPE     REASON        OBJECT            COUNT  MESSAGE\n"
      "2023-11-14T22:13:21.000Z  normal   EpochServing  deployment/local  2      message 1\n"
      "2023-11-14T22:13:22.000Z  warning  Left          worker/w0         2      message 2\n");
  EXPECT_THAT(Run({"get", "events", "w0"}),
              ::testing::AllOf(HasSubstr("worker/w0"), Not(HasSubstr("local"))));
  EXPECT_EQ(RunJson({"get", "events"})["events"][0]["reason"], "EpochServing");
}

TEST_F(CommandsTest, GetFollowsEventsAcrossARestartOfTheCoordinator) {
  for (std::uint64_t number : {7, 8}) {
    *coordinator_.events.add_events() = switchyard::testing::EventMessage(number, "local");
  }
  int looks = 0;
  coordinator_.on_get = [&] {
    if (++looks != 2) return;
    coordinator_.events.clear_events();
    *coordinator_.events.add_events() = switchyard::testing::EventMessage(1, "w0");
  };
  std::string seen;
  const Viewer viewer{.live = [&seen](const std::string& text) {
    seen += text;
    return !absl::StrContains(seen, "w0");
  }};

  const SyctlResult result = RunSyctl(
      {"get", "events", "-w", "-o", "table", "--target", coordinator_.endpoint()}, {}, viewer);

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(seen,
            "2023-11-14T22:13:27.000Z  normal  EpochServing  deployment/local  message 7\n"
            "2023-11-14T22:13:28.000Z  normal  EpochServing  deployment/local  message 8\n"
            "2023-11-14T22:13:21.000Z  warning  Left  worker/w0  message 1\n");
}

// An empty list would say that it is there.
TEST_F(CommandsTest, GetOfWhatIsNotThereIsAnError) {
  Run({"get", "sessions", "nope"});
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("unknown deployment nope; known: local"));
  Run({"get", "events", "nope"});
  EXPECT_THAT(std::string(status_.message()), HasSubstr("unknown deployment or worker nope"));
  EXPECT_EQ(Run({"get", "sessions", "local"}), "There are no sessions.\n");
  SY_EXPECT_OK(status_);
  EXPECT_EQ(Run({"get", "events", "w0"}), "Nothing has happened so far.\n");
  SY_EXPECT_OK(status_);
}

TEST_F(CommandsTest, GetPrintsSessions) {
  EXPECT_EQ(Run({"get", "sessions"}), "There are no sessions.\n");
  for (const char* deployment : {"local", "other"}) {
    v1::Session& session = *coordinator_.sessions.add_sessions();
    session.set_name("0123abcd");
    session.set_deployment(deployment);
    session.set_phase(v1::PHASE_DECODE);
    session.set_mode(v1::DISPATCH_MODE_LOW_LATENCY);
    session.set_source(v1::DEVICE_KIND_CPU);
    session.set_peer("ipv4:10.0.0.1:5000");
    session.set_epoch(4);
    session.mutable_age()->set_seconds(7300);
    session.set_binding(v1::BINDING_CHOICE_P2P);
  }
  v1::Session& in_group = *coordinator_.sessions.add_sessions();
  in_group = coordinator_.sessions.sessions(0);
  in_group.set_binding(v1::BINDING_CHOICE_COLLECTIVE);
  in_group.mutable_group()->set_name("engine");
  in_group.mutable_group()->set_source(1);
  in_group.mutable_group()->set_sources(2);
  in_group.set_ranks(4);

  EXPECT_EQ(
      Run({"get", "sessions", "local"}),
      "NAME      DEPLOYMENT  PHASE   MODE         SOURCE  BINDING     GROUP                   "
      "EPOCH  AGE  PEER\n"
      "0123abcd  local       decode  low_latency  cpu     p2p         -                       "
      "4      2h   ipv4:10.0.0.1:5000\n"
      "0123abcd  local       decode  low_latency  cpu     collective  engine 1 of 2, 4 ranks  "
      "4      2h   ipv4:10.0.0.1:5000\n");
  EXPECT_EQ(RunJson({"get", "sessions"})["sessions"].size(), 3U);

  v1::Session& hosted = *coordinator_.sessions.mutable_sessions(2);
  hosted.mutable_group()->add_hosts("rank-0");
  hosted.mutable_group()->add_hosts("rank-1");
  hosted.set_ranks(2);
  EXPECT_THAT(Run({"get", "sessions", "local"}),
              HasSubstr("engine 1 of 2, 2 ranks, its own with rank-1  "));
}

TEST_F(CommandsTest, DescribePrintsOneThing) {
  EXPECT_THAT(Run({"describe", "deployment", "local"}), HasSubstr("activity:"));
  EXPECT_THAT(Run({"describe", "model", "toy"}), HasSubstr("deployments:  local: serving"));
  EXPECT_THAT(Run({"describe", "worker", "w1"}), HasSubstr("local       4       0 2-3\n"));
  EXPECT_THAT(Run({"describe", "layer", "4"}), StartsWith("layer 4, epoch 3"));
  EXPECT_EQ(RunJson({"describe", "worker", "w1"})["id"], "w1");
  EXPECT_EQ(RunJson({"describe", "worker/w1"})["id"], "w1");
  SY_EXPECT_OK(status_);
}

TEST_F(CommandsTest, DescribeNamesWhatThereIsInsteadOfWhatIsNot) {
  EXPECT_EQ(Run({"describe", "worker", "w7"}), "");
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("unknown worker w7; known: w0, w1"));
  EXPECT_EQ(Run({"describe", "model", "m"}), "");
  EXPECT_THAT(std::string(status_.message()), HasSubstr("unknown model m; known: toy"));
  EXPECT_EQ(Run({"describe", "deployment", "d"}), "");
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(CommandsTest, ExplainAsksForThePhaseAndDeployment) {
  EXPECT_THAT(Run({"explain", "layer", "1", "--phase", "decode", "--deployment", "local"}),
              HasSubstr("  - mode low_latency: decode steps have few tokens\n"));

  ASSERT_EQ(coordinator_.explained().size(), 1U);
  EXPECT_EQ(coordinator_.explained()[0].layer(), 1U);
  EXPECT_EQ(coordinator_.explained()[0].phase(), v1::PHASE_DECODE);
  EXPECT_EQ(coordinator_.explained()[0].deployment(), "local");
  EXPECT_EQ(RunJson({"explain", "layer", "1"})["configs"][1]["phase"], "decode");
}

TEST_F(CommandsTest, ExplainMarksAnEdgeThatThePlanDoesNotHave) {
  const std::string text = Run({"explain", "layer", "1", "--edge", "cpu:ascend_a3"});
  SY_EXPECT_OK(status_);
  EXPECT_THAT(text,
              StartsWith("the plan has no edge cpu -> ascend_a3; this would be the decision "));
  EXPECT_THAT(text, HasSubstr("\ndecode, cpu -> ascend_a3: would be low_latency, bf16 out and "));
  EXPECT_THAT(Run({"explain", "layer", "1", "--edge", "cpu:cpu"}), StartsWith("layer 1, epoch 3"));

  ASSERT_EQ(coordinator_.explained().size(), 2U);
  EXPECT_EQ(coordinator_.explained()[0].edge().source(), "cpu");
  EXPECT_EQ(coordinator_.explained()[0].edge().worker(), "ascend_a3");
  const Json json = RunJson({"explain", "layer", "1", "--edge", "cpu:ascend_a3"});
  EXPECT_EQ(json["hypothetical"][0]["worker_profile"], "ascend_a3");
}

// The refused deployment is the one whose reasons are asked for most.
TEST_F(CommandsTest, ExplainAnswersForADeploymentWithoutAPlan) {
  coordinator_.explain_without_plan = true;

  const std::string text = Run({"explain", "layer", "1"});
  SY_EXPECT_OK(status_);
  EXPECT_EQ(text, "no plan; refused: it can never work\n\nRefused, FAILED_PRECONDITION: no fp8\n");
  const Json json = RunJson({"explain", "layer", "1"});
  EXPECT_EQ(json["traces"][0]["refusal"]["reason"], "BAD_CONFIG");
  EXPECT_EQ(json["traces"][0]["page"], "") << "its fields say the same";

  EXPECT_EQ(Run({"describe", "layer", "1"}), "");
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("refused: it can never work"));
}

TEST_F(CommandsTest, ApplyAndItsDryRunSayWhatWasChanged) {
  coordinator_.warning = "Ascend A2 NPU does not support fp8 rows; switching to int8";
  coordinator_.trail = {"mode normal: prefill", "wire dtype fp8: rule 0 (explicit): asked for",
                        "wire dtype int8, not fp8: hardware: no fp8 rows", "combine dtype bf16"};
  const TempDir dir;
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpoint: /a\n");

  const std::string tried = Run({"apply", "--dry-run", "-f", file});
  const std::string applied = Run({"apply", "-f", file});

  EXPECT_THAT(tried, HasSubstr("  - warning: Ascend A2 NPU does not support fp8 rows; switching"));
  EXPECT_THAT(tried, HasSubstr("fp8: rule 0 (explicit): asked for; then int8, not fp8: hardware: "
                               "no fp8 rows\n"));
  EXPECT_THAT(applied, HasSubstr("warning: local: Ascend A2 NPU does not support fp8 rows"));
  EXPECT_EQ(RunJson({"apply", "-f", file})["applied"][0]["warnings"][0]["id"], "fp8_to_int8");
}

TEST_F(CommandsTest, APlanThatIsNotReadyIsAnErrorAndPrintsNothing) {
  coordinator_.plan_error =
      MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "waiting for workers");

  EXPECT_EQ(Run({"get", "layers"}), "");
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
}

TEST_F(CommandsTest, ApplySendsEachDeploymentOfTheFile) {
  const TempDir dir;
  const std::string file = dir.Write(
      "d.yaml", "name: local\ncheckpoint: /a\n---\nname: second\ncheckpoint: /b\nmin_workers: 3\n");

  EXPECT_EQ(Run({"apply", "-f", file}),
            "NAME    RESULT   STATE    ACTIVITY\n"
            "local   changed  pending  waiting for workers\n"
            "second  created  pending  waiting for workers\n");

  SY_EXPECT_OK(status_);
  ASSERT_EQ(coordinator_.applied().size(), 2U);
  EXPECT_EQ(coordinator_.applied()[1].deployment().min_workers(), 3U);
  EXPECT_FALSE(coordinator_.applied()[1].validate_only());
}

TEST_F(CommandsTest, ADryRunOnlyChecks) {
  const TempDir dir;
  const std::string file =
      dir.Write("d.yaml", "name: local\ncheckpoint: /a\n---\nname: second\ncheckpoint: /b\n");

  EXPECT_EQ(Run({"apply", "--dry-run", "-f", file}),
            "NAME    RESULT\n"
            "local   would be changed\n"
            "second  would be created\n"
            "\n"
            "local: checked; a plan with 2 workers is possible\n"
            "  - would be left out: w9: no memory\n"
            "  LAYERS  PHASE    EDGE        MODE         WIRE  SCHEME  WHY\n"
            "  0-1 4   prefill  cpu -> cpu  normal       bf16  none    bf16: unquantized\n"
            "  0-1 4   decode   cpu -> cpu  low_latency  bf16  none    -\n"
            "\n"
            "second: checked; a plan with 2 workers is possible\n"
            "  - would be left out: w9: no memory\n"
            "  LAYERS  PHASE    EDGE        MODE         WIRE  SCHEME  WHY\n"
            "  0-1 4   prefill  cpu -> cpu  normal       bf16  none    bf16: unquantized\n"
            "  0-1 4   decode   cpu -> cpu  low_latency  bf16  none    -\n");

  ASSERT_EQ(coordinator_.applied().size(), 2U);
  EXPECT_TRUE(coordinator_.applied()[0].validate_only());
  const Json json = RunJson({"apply", "--dry-run", "-f", file});
  EXPECT_EQ(json["applied"][0]["configs"].size(), 6U);
}

TEST_F(CommandsTest, ADryRunSaysWhyThereCanBeNoPlan) {
  coordinator_.problem =
      MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "0 workers are connected");
  const TempDir dir;
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpoint: /a\n");

  EXPECT_THAT(Run({"apply", "--dry-run", "-f", file}),
              HasSubstr("local: checked; the available workers are not sufficient\n"
                        "  - 0 workers are connected\n"));
  SY_EXPECT_OK(status_);
}

// A script that applies must see it: what is refused is not only printed.
TEST_F(CommandsTest, ApplyAndItsDryRunFailWithWhatNoWorkerMends) {
  coordinator_.problem =
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                "layer 0 of scheme awq_int4 takes no fp8 rows", {{"layer", "0"}});
  const TempDir dir;
  const std::string file =
      dir.Write("d.yaml", "name: local\ncheckpoint: /a\n---\nname: second\ncheckpoint: /b\n");

  EXPECT_THAT(Run({"apply", "--dry-run", "-f", file}),
              HasSubstr("  - layer 0 of scheme awq_int4 takes no fp8 rows\n"));
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_EQ(status_.message(), file + ": layer 0 of scheme awq_int4 takes no fp8 rows");
  EXPECT_EQ(MetadataOf(status_).at("layer"), "0");

  EXPECT_THAT(Run({"apply", "-f", file}), HasSubstr("second  created"));
  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
}

// Where no worker is connected yet, the rest is a matter of time.
TEST_F(CommandsTest, ApplySucceedsWhereOnlyWorkersAreMissing) {
  coordinator_.problem =
      MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "0 workers are connected");
  const TempDir dir;
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpoint: /a\n");

  Run({"apply", "-f", file});

  SY_EXPECT_OK(status_);
}

TEST_F(CommandsTest, ApplyingTheSameAgainChangesNothing) {
  v1::DeploymentSpec& spec = *coordinator_.deployments.mutable_deployments(0)->mutable_spec();
  spec.Clear();
  spec.set_name("local");
  spec.set_checkpoint("/a");
  const TempDir dir;
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpoint: /a\n");

  EXPECT_THAT(Run({"apply", "-f", file}), HasSubstr("local  unchanged"));
  EXPECT_THAT(Run({"apply", "--dry-run", "-f", file}), HasSubstr("local  would not change"));
}

TEST_F(CommandsTest, ApplyStopsAtTheFirstRefusalAndSaysWhatWasApplied) {
  coordinator_.refuse_apply_of = "second";
  const TempDir dir;
  const std::string file = dir.Write(
      "d.yaml", "name: one\ncheckpoint: /a\n---\nname: second\n---\nname: third\ncheckpoint: /c\n");

  EXPECT_THAT(Run({"apply", "-f", file}), HasSubstr("one   created"));

  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(status_).at("deployment"), "second");
  EXPECT_THAT(std::string(status_.message()), StartsWith(file + ": checkpoint is missing"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("; not tried: third"));
  EXPECT_EQ(coordinator_.applied().size(), 2U);
  EXPECT_EQ(RunJson({"apply", "-f", file})["applied"][0]["result"], "created");
}

TEST_F(CommandsTest, ABadFileIsRefusedBeforeAnythingIsSent) {
  const TempDir dir;
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpont: /a\n");

  EXPECT_EQ(Run({"apply", "-f", file}), "");

  EXPECT_THAT(status_, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("did you mean \"checkpoint\"?"));
  EXPECT_TRUE(coordinator_.applied().empty());
}

TEST_F(CommandsTest, VersionNamesBothSides) {
  EXPECT_THAT(Run({"version"}), HasSubstr("coordinator  9.8.7 at " + coordinator_.endpoint() +
                                          ", protocol v6, frames v5"));
  EXPECT_EQ(RunJson({"version"})["coordinator"]["frame_version"], 5);
  EXPECT_FALSE(RunJson({"version", "--client"}).contains("coordinator"));
}

}  // namespace
}  // namespace switchyard::ctl
