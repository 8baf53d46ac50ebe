#include "ctl/command_line.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::ctl {
namespace {

using ::testing::HasSubstr;

CommandLine Parse(const std::vector<std::string>& words) {
  const ParsedCommandLine parsed = ParseCommandLine(words);
  EXPECT_TRUE(parsed.line.has_value()) << parsed.text;
  return parsed.line.value_or(CommandLine{});
}

TEST(CommandLineTest, ReadsEachVerb) {
  const CommandLine apply = Parse({"apply", "-f", "x.yaml", "--dry-run"});
  EXPECT_EQ(apply.verb, Verb::kApply);
  EXPECT_EQ(apply.file, "x.yaml");
  EXPECT_TRUE(apply.dry_run);
  const CommandLine get = Parse({"get", "plan", "--deployment", "a"});
  EXPECT_EQ(get.verb, Verb::kGet);
  EXPECT_EQ(get.kind, Kind::kPlan);
  EXPECT_EQ(get.deployment, "a");
  const CommandLine describe = Parse({"describe", "worker", "w0"});
  EXPECT_EQ(describe.kind, Kind::kWorkers);
  EXPECT_EQ(describe.name, "w0");
  const CommandLine explain = Parse({"explain", "layer", "12", "--phase", "decode"});
  EXPECT_EQ(explain.verb, Verb::kExplain);
  EXPECT_EQ(explain.layer, 12U);
  EXPECT_EQ(explain.phase, v1::PHASE_DECODE);
  EXPECT_TRUE(Parse({"version", "--client"}).client_only);
}

TEST(CommandLineTest, ReadsWhatToCompareAndWhereToGoBack) {
  const CommandLine diff = Parse({"diff", "-f", "x.yaml"});
  EXPECT_EQ(diff.verb, Verb::kDiff);
  EXPECT_EQ(diff.file, "x.yaml");
  EXPECT_EQ(diff.timeout, std::chrono::minutes(30)) << "the coordinator reads the checkpoint";
  const CommandLine back = Parse({"rollback", "deployment", "a", "--to-revision", "7", "--wait"});
  EXPECT_EQ(back.verb, Verb::kRollback);
  EXPECT_EQ(back.name, "a");
  EXPECT_EQ(back.to_revision, 7U);
  EXPECT_TRUE(back.wait);
  const CommandLine revisions = Parse({"get", "revisions", "a"});
  EXPECT_EQ(revisions.kind, Kind::kRevisions);
  EXPECT_EQ(revisions.deployment, "a");
  EXPECT_EQ(Parse({"get", "layers", "a"}).deployment, "a");
  EXPECT_EQ(Parse({"get", "sessions", "a"}).deployment, "a");
  EXPECT_EQ(Parse({"get", "events", "w0"}).name, "w0");
  EXPECT_EQ(Parse({"get", "worker", "w0"}).name, "w0");
  EXPECT_EQ(ParseCommandLine({"get", "plan", "a", "--deployment", "b"}).exit_code, 2);
}

TEST(CommandLineTest, ReadsTheVerbsThatChangeSomething) {
  const CommandLine gone = Parse({"delete", "deployment", "a", "--now", "--wait"});
  EXPECT_EQ(gone.verb, Verb::kDelete);
  EXPECT_EQ(gone.name, "a");
  EXPECT_TRUE(gone.now);
  EXPECT_TRUE(gone.wait);
  EXPECT_EQ(Parse({"delete", "deployments/a"}).name, "a");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"drain", "worker", "w0"}, {"drain", "worker/w0"}, {"drain", "w0"}}) {
    const CommandLine drain = Parse(words);
    EXPECT_EQ(drain.verb, Verb::kDrain);
    EXPECT_EQ(drain.name, "w0");
  }
  EXPECT_TRUE(Parse({"drain", "w0", "--force"}).force);
  EXPECT_EQ(Parse({"cordon", "w0"}).verb, Verb::kCordon);
  EXPECT_EQ(Parse({"uncordon", "w0"}).verb, Verb::kUncordon);
  const CommandLine wait = Parse({"wait", "worker/w0", "--for=drained", "--timeout", "7"});
  EXPECT_EQ(wait.kind, Kind::kWorkers);
  EXPECT_EQ(wait.condition, Condition::kDrained);
  EXPECT_EQ(wait.wait_timeout, std::chrono::seconds(7));
  EXPECT_TRUE(Parse({"get", "workers", "-w"}).watch);
}

TEST(CommandLineTest, TracesGoOnUntilSomethingEndsThem) {
  const CommandLine traces = Parse({"traces"});
  EXPECT_EQ(traces.verb, Verb::kTraces);
  EXPECT_EQ(traces.listen, "127.0.0.1:4317");
  EXPECT_EQ(traces.count, 0U);
  EXPECT_EQ(traces.wait_timeout, Duration::zero());
  const CommandLine some =
      Parse({"traces", "--listen", "0.0.0.0:0", "--count", "3", "--timeout", "7"});
  EXPECT_EQ(some.listen, "0.0.0.0:0");
  EXPECT_EQ(some.count, 3U);
  EXPECT_EQ(some.wait_timeout, std::chrono::seconds(7));
}

// One call must not take the whole time of a wait: the coordinator may have stopped.
TEST(CommandLineTest, ACallOfAWaitKeepsItsOwnTimeout) {
  EXPECT_EQ(Parse({"wait", "deployment", "a", "--for", "serving"}).wait_timeout,
            std::chrono::minutes(5));
  const CommandLine long_wait =
      Parse({"wait", "deployment", "a", "--for", "serving", "--timeout", "600"});
  EXPECT_EQ(long_wait.wait_timeout, std::chrono::minutes(10));
  EXPECT_EQ(long_wait.timeout, std::chrono::seconds(10));
}

TEST(CommandLineTest, RefusesObjectsAndConditionsThatDoNotFit) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{"delete", "worker", "w0"}, "unknown kind \"worker\"; one of deployment"},
      {{"delete", "local"}, "unknown kind \"local\""},
      {{"delete", "deployment"}, "name the deployment"},
      {{"drain"}, "WORKER is required"},
      {{"drain", "deployment", "a"}, "unknown kind \"deployment\""},
      {{"drain", "worker/"}, "name the worker"},
      {{"wait", "worker", "w0", "--for", "serving"}, "--for serving does not suit a worker"},
      {{"wait", "deployment", "a", "--for", "drained"}, "--for drained does not suit a deployment"},
      {{"wait", "deployment", "a"}, "--for is required"},
      {{"wait", "deployment", "a", "--for", "ready"}, "ready not in"}};
  for (const auto& [words, says] : bad) {
    const ParsedCommandLine parsed = ParseCommandLine(words);
    EXPECT_EQ(parsed.exit_code, 2) << absl::StrJoin(words, " ");
    EXPECT_THAT(parsed.text, HasSubstr(says)) << absl::StrJoin(words, " ");
  }
}

TEST(CommandLineTest, ReadsAnEdge) {
  const CommandLine line = Parse({"explain", "layer", "3", "--edge", "gpu:ascend_a2"});
  EXPECT_EQ(line.edge_source, "gpu");
  EXPECT_EQ(line.edge_worker, "ascend_a2");
  for (const char* bad : {"gpu", ":npu", "gpu:", "gpu:npx", "gpx:npu", "cpu:cpu:cpu"}) {
    EXPECT_FALSE(ParseCommandLine({"explain", "layer", "3", "--edge", bad}).line.has_value())
        << bad;
  }
}

TEST(CommandLineTest, ReadsWhatToInspect) {
  const CommandLine all = Parse({"model", "inspect", "/m"});
  EXPECT_EQ(all.verb, Verb::kModelInspect);
  EXPECT_EQ(all.path, "/m");
  EXPECT_FALSE(all.only_layer.has_value());
  EXPECT_EQ(all.worker_kind, "");
  const CommandLine some =
      Parse({"model", "inspect", "/m", "--layer", "0", "--worker-kind", "ascend_a2", "-o", "json"});
  EXPECT_EQ(some.only_layer, 0);
  EXPECT_EQ(some.worker_kind, "ascend_a2");
  EXPECT_EQ(some.output, OutputFormat::kJson);
}

TEST(CommandLineTest, RefusesAnInspectionOfNothing) {
  const std::vector<std::vector<std::string>> bad{
      {"model"},
      {"model", "inspect"},
      {"model", "weigh", "/m"},
      {"model", "inspect", "/m", "--layer", "-1"},
      {"model", "inspect", "/m", "--worker-kind", "gpx"}};
  for (const std::vector<std::string>& words : bad) {
    const ParsedCommandLine parsed = ParseCommandLine(words);
    EXPECT_FALSE(parsed.line.has_value()) << absl::StrJoin(words, " ");
    EXPECT_EQ(parsed.exit_code, 2) << absl::StrJoin(words, " ");
    EXPECT_THAT(parsed.text, HasSubstr("'syctl model --help'")) << absl::StrJoin(words, " ");
  }
}

TEST(CommandLineTest, TakesKindsInBothForms) {
  EXPECT_EQ(Parse({"get", "worker"}).kind, Kind::kWorkers);
  EXPECT_EQ(Parse({"describe", "layers", "3"}).layer, 3U);
}

TEST(CommandLineTest, TakesCommonOptionsBeforeAndAfterTheVerb) {
  const CommandLine before = Parse({"--target", "h:1", "-o", "json", "get", "models"});
  const CommandLine after = Parse({"get", "models", "--target", "h:1", "-o", "json"});

  for (const CommandLine& line : {before, after}) {
    EXPECT_EQ(line.target, "h:1");
    EXPECT_EQ(line.output, OutputFormat::kJson);
  }
}

TEST(CommandLineTest, ReadsFormsOfOutput) {
  const CommandLine wide =
      Parse({"get", "workers", "-o", "wide", "--sort-by", ".id", "--no-headers", "--color=never"});
  EXPECT_EQ(wide.output, OutputFormat::kWide);
  EXPECT_EQ(wide.sort_by, ".id");
  EXPECT_TRUE(wide.no_headers);
  EXPECT_EQ(wide.color, Color::kNever);
  const CommandLine path = Parse({"get", "plan", "-o", "jsonpath={.plan.epoch}"});
  EXPECT_EQ(path.output, OutputFormat::kJsonPath);
  EXPECT_EQ(path.json_path, "{.plan.epoch}");
  EXPECT_EQ(Parse({"-o", "yaml", "top"}).output, OutputFormat::kYaml);
  EXPECT_EQ(Parse({"get", "layers", "-o", "jsonl"}).output, OutputFormat::kJsonLines);
}

TEST(CommandLineTest, ReadsWhatToDoWithContexts) {
  const CommandLine set = Parse({"config", "set-context", "prod", "--target", "h:1"});
  EXPECT_EQ(set.verb, Verb::kConfig);
  EXPECT_EQ(set.config_verb, ConfigVerb::kSetContext);
  EXPECT_EQ(set.name, "prod");
  EXPECT_TRUE(set.target_given);
  EXPECT_EQ(Parse({"config", "use-context", "prod"}).config_verb, ConfigVerb::kUseContext);
  EXPECT_EQ(Parse({"config", "get-contexts"}).config_verb, ConfigVerb::kGetContexts);
  const CommandLine get = Parse({"--context", "prod", "get", "workers"});
  EXPECT_EQ(get.context, "prod");
  EXPECT_FALSE(get.target_given);
}

TEST(CommandLineTest, HasDefaults) {
  const CommandLine get = Parse({"get", "workers"});
  const CommandLine apply = Parse({"apply", "-f", "x"});

  EXPECT_EQ(get.target, kDefaultTarget);
  EXPECT_FALSE(get.output.has_value());
  EXPECT_EQ(get.timeout, std::chrono::seconds(10));
  EXPECT_EQ(apply.timeout, std::chrono::minutes(30));
  EXPECT_EQ(Parse({"apply", "-f", "x", "--timeout", "5m"}).timeout, std::chrono::minutes(5));
  EXPECT_EQ(Parse({"apply", "-f", "x", "--timeout", "500ms"}).timeout,
            std::chrono::milliseconds(500));
  EXPECT_EQ(Parse({"apply", "-f", "x", "--timeout", "0.5"}).timeout,
            std::chrono::milliseconds(500));
}

struct WrongWords {
  std::vector<std::string> words;
  std::string says;

  friend void PrintTo(const WrongWords& wrong, std::ostream* out) {
    *out << "syctl " << absl::StrJoin(wrong.words, " ");
  }
};

class CommandLineRefusalTest : public ::testing::TestWithParam<WrongWords> {};

TEST_P(CommandLineRefusalTest, SaysWhatIsWrongAndWhereTheHelpIs) {
  const ParsedCommandLine parsed = ParseCommandLine(GetParam().words);

  EXPECT_FALSE(parsed.line.has_value());
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.text, HasSubstr(GetParam().says));
  EXPECT_THAT(parsed.text, HasSubstr("--help' shows the usage\n"));
}

INSTANTIATE_TEST_SUITE_P(
    AllRefusals, CommandLineRefusalTest,
    ::testing::Values(
        WrongWords{{}, "A subcommand is required"},
        WrongWords{{"--target", "h:1", "-o", "json", "evnts"}, "unknown verb \"evnts\""},
        WrongWords{{"gte", "workers"}, "unknown verb \"gte\"; did you mean \"get\"?"},
        WrongWords{{"frobnicate"},
                   "one of apply, diff, rollback, delete, cordon, uncordon, drain, wait, get, top, "
                   "traces, describe, explain, model, certs, doctor, config, completion, version"},
        WrongWords{{"get"}, "KIND is required"},
        WrongWords{{"get", "wrokers"}, "unknown kind \"wrokers\"; did you mean \"workers\"?"},
        WrongWords{{"describe", "plan", "x"}, "one of deployment, model, worker, layer"},
        WrongWords{{"describe", "worker"}, "NAME is required"},
        WrongWords{{"explain", "worker", "w0"}, "unknown kind \"worker\""},
        WrongWords{{"explain", "layer", "x"}, "\"x\" is not a layer number"},
        WrongWords{{"explain", "layer", "-1"}, "-1"},
        WrongWords{{"describe", "layer", "4294967296"}, "is not a layer number"},
        WrongWords{{"explain", "layer", "0", "--phase", "late"}, "late"},
        WrongWords{{"apply"}, "--file is required"},
        WrongWords{{"get", "workers", "-o", "xml"}, "xml"},
        WrongWords{{"get", "workers", "-o", "jsonpath={..id}"}, "\"..\" is not supported"},
        WrongWords{{"get", "plan", "-o", "name"}, "except 'get plan'"},
        WrongWords{{"get", "metrics", "-o", "name"}, "and 'get metrics'"},
        WrongWords{{"top", "-o", "name"}, "-o name suits 'get'"},
        WrongWords{{"get", "workers", "--sort-by", ".a["}, "\"[\" without \"]\""},
        WrongWords{{"get", "workers", "--color", "red"}, "red"},
        WrongWords{{"describe", "worker", "w0", "--no-headers"}, "--no-headers"},
        WrongWords{{"doctor", "--scope", "moon"}, "moon"},
        WrongWords{{"doctor", "--shm-bytes", "much"}, "\"much\" is no number of bytes"},
        WrongWords{{"doctor", "--checkpoint"}, "--checkpoint"}, WrongWords{{"doctor", "w0"}, "w0"},
        WrongWords{{"doctor", "-o", "name"}, "-o name suits 'get'"},
        WrongWords{{"config"}, "subcommand"},
        WrongWords{{"config", "use-context"}, "NAME is required"},
        WrongWords{{"get", "workers", "--target", "here"}, "\"here\" is not \"host:port\""},
        WrongWords{{"get", "workers", "--target", "h:99999"}, "is not \"host:port\""},
        WrongWords{{"get", "workers", "--timeout", "0"}, "timeout"},
        WrongWords{{"get", "workers", "--timeout", "5x"},
                   "\"5x\" is not a time; write 90s, 5m or a number of seconds"},
        WrongWords{{"get", "workers", "w0", "more"}, "more"},
        WrongWords{{"get", "workers", "--timeout", "5d"}, "timeout"},
        WrongWords{{"-v"}, "unknown option -v; did you mean --version?"},
        WrongWords{{"get", "workers", "--taget", "h:1"}, "did you mean --target?"}));

TEST(CommandLineTest, HelpOfEachVerbHasExamplesAndTheCommonOptions) {
  for (const std::string verb : {"apply", "get", "describe", "explain", "version"}) {
    const ParsedCommandLine parsed = ParseCommandLine({verb, "--help"});

    EXPECT_FALSE(parsed.line.has_value());
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_THAT(parsed.text, HasSubstr("syctl " + verb));
    EXPECT_THAT(parsed.text, HasSubstr("--target HOST:PORT"));
  }
  EXPECT_THAT(ParseCommandLine({"--help"}).text, HasSubstr("Exit codes: 0 success"));
}

}  // namespace
}  // namespace switchyard::ctl
