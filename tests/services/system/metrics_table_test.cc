// The table of docs/METRICS.md against what both programs write, both ways; and promtool's own
// opinion.
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "services/coordinator/coordinator_metrics.h"
#include "services/worker/worker_metrics.h"
#include "tests/docs/pages.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

// As the programs write it.
std::string WithCertificateAndCalls(MetricsText text) {
  AddCertificate(1, 2, &text);
  CallCounts call{.service = "a.B", .method = "C", .started = 1, .seconds = HistogramCounts()};
  call.handled[0] = 1;
  call.seconds.Observe(std::uint64_t{1});
  AddCalls({call}, &text);
  return std::move(text).Take();
}

std::string OfACoordinator() {
  CoordinatorView view;
  DeploymentView deployment;
  deployment.spec.name = "a";
  view.deployments = {deployment};
  return WithCertificateAndCalls(CoordinatorMetrics(view, DriverCounters(), {}));
}

// With one sample of each histogram.
std::string OfAWorker() {
  ExpertTimes times;
  LoadTimes loads;
  GatewayCounts gateway;
  GroupCounts groups;
  BatchTimes& batch = times.Of(WorkClass::kDecode, DispatchMode::kNormal);
  for (Histogram* each : {&batch.dispatch, &batch.compute, &batch.combine, &batch.rows,
                          &times.Request(WorkClass::kDecode, DispatchMode::kNormal,
                                         DispatchDtype::kBf16, LinkPath::kMapped),
                          &gateway.StepOf(WorkClass::kDecode, DispatchMode::kNormal), &loads.loaded,
                          &groups.step, &groups.exchange.peer_wait}) {
    each->Observe(std::uint64_t{1});
  }
  WorkerFacts facts;
  facts.resident = {{.deployment = "a", .epoch = Epoch{1}, .hash = {}, .committed = true}};
  facts.view.emplace();
  facts.times = &times;
  facts.loads = &loads;
  facts.gateway_counts = &gateway;
  facts.groups = &groups;
  return WithCertificateAndCalls(WorkerMetrics(facts));
}

// Name -> type and labels, "device, state".
using Families = std::map<std::string, std::pair<std::string, std::string>>;

// Fails where HELP and TYPE are not there exactly once, or a sample is not of the family before it.
Families Parse(const std::string& text) {
  Families families;
  std::string name;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (absl::StartsWith(line, "# HELP ")) {
      name = words[2];
      EXPECT_FALSE(families.contains(name)) << name;
      EXPECT_GT(words[3].size(), 5U) << name;
    } else if (absl::StartsWith(line, "# TYPE ")) {
      EXPECT_EQ(words[2], name);
      families[name] = {words[3], "-"};
    } else {
      const std::string sample(line.substr(0, line.find_first_of("{ ")));
      const bool is_histogram = families[name].first == "histogram";
      const auto is = [&](absl::string_view suffix) {
        return sample == absl::StrCat(name, suffix);
      };
      EXPECT_TRUE(is_histogram ? is("_bucket") || is("_sum") || is("_count") : is("")) << line;
      std::set<std::string> labels;
      for (const std::string& part : docs::Between(std::string(line), "{", "}")) {
        for (const absl::string_view label : absl::StrSplit(part, ',')) {
          const absl::string_view label_name = label.substr(0, label.find('='));
          if (!is_histogram || label_name != "le") labels.emplace(label_name);
        }
      }
      if (!labels.empty()) families[name].second = absl::StrJoin(labels, ", ");
    }
  }
  return families;
}

Families Documented(const std::string& program) {
  Families families;
  for (const auto& cells :
       docs::TableBelow("docs/METRICS.md", {"metric", "of", "type", "labels", "unit", "meaning"})) {
    if (cells[1] == program || cells[1] == "both") families[cells[0]] = {cells[2], cells[3]};
  }
  return families;
}

TEST(MetricsTableTest, ListsWhatACoordinatorWrites) {
  EXPECT_EQ(Documented("coordinator"), Parse(OfACoordinator()));
}

TEST(MetricsTableTest, ListsWhatAWorkerWrites) {
  EXPECT_EQ(Documented("worker"), Parse(OfAWorker()));
}

TEST(MetricsTableTest, NamesFollowTheRules) {
  for (const std::string& text : {OfACoordinator(), OfAWorker()}) {
    for (const auto& [name, family] : Parse(text)) {
      if (absl::StartsWith(name, "grpc_server_")) continue;  // names of others
      EXPECT_TRUE(absl::StartsWith(name, "moe_")) << name;
      EXPECT_EQ(absl::EndsWith(name, "_total"), family.first == "counter") << name;
      EXPECT_EQ(absl::EndsWith(name, "_duration_seconds") || name == "moe_batch_rows",
                family.first == "histogram")
          << name;
      for (const char* unit : {"_ms", "_us", "_ns", "_mb", "_kb", "milliseconds"}) {
        EXPECT_FALSE(absl::EndsWith(name, unit)) << name;
      }
    }
  }
}

TEST(MetricsTableTest, PromtoolHasNothingToSay) {
  const std::string tool = "/usr/bin/promtool";
  if (::access(tool.c_str(), X_OK) != 0) GTEST_SKIP() << "no " << tool << " (package prometheus)";
  const testing::TempDir dir;
  for (const std::string& text : {OfACoordinator(), OfAWorker()}) {
    const std::string file = dir.Write("metrics", text);
    const testing::ProgramResult result = testing::RunProgram(
        {"/bin/sh", "-c", absl::StrCat("exec ", tool, " check metrics <", file)});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.out + result.err, "");
  }
}

}  // namespace
}  // namespace switchyard
