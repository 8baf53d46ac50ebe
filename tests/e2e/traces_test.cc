// Traces of steps of real processes, as a collector gets them (docs/TRACES.md).
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/services/tracing/trace_collector.h"
#include "tests/testing/program.h"
#include "tests/testing/silent_port.h"

namespace switchyard {
namespace {

using testing::AttributeOf;
using testing::Batch;
using testing::CollectedSpan;
using testing::Processes;
using testing::RunStep;
using testing::SilentPort;
using testing::TraceCollector;

constexpr std::int32_t kLayer = 0;
// The clocks of two processes of a host are compared with so much doubt.
constexpr std::uint64_t kDoubtNs = 50'000;

// The spans of one step, by their id.
using Trace = std::map<std::string, CollectedSpan>;
std::map<std::string, Trace> TracesOf(const std::vector<CollectedSpan>& spans) {
  std::map<std::string, Trace> traces;
  for (const CollectedSpan& span : spans) {
    EXPECT_TRUE(traces[span.span.trace_id()].emplace(span.span.span_id(), span).second)
        << span.span.name() << " came twice";
  }
  return traces;
}
std::vector<CollectedSpan> Named(const Trace& trace, const std::string& name) {
  std::vector<CollectedSpan> found;
  for (const auto& [id, span] : trace) {
    if (span.span.name() == name) found.push_back(span);
  }
  return found;
}

// Each span but the root lies within its parent.
void ExpectNested(const Trace& trace) {
  for (const auto& [id, span] : trace) {
    const auto& child = span.span;
    EXPECT_LE(child.start_time_unix_nano(), child.end_time_unix_nano()) << child.name();
    if (child.name() == "moe.step") {
      EXPECT_TRUE(child.parent_span_id().empty());
      continue;
    }
    const auto at = trace.find(child.parent_span_id());
    ASSERT_NE(at, trace.end()) << child.name() << " has no parent";
    const auto& parent = at->second.span;
    EXPECT_GE(child.start_time_unix_nano() + kDoubtNs, parent.start_time_unix_nano())
        << child.name() << " begins before " << parent.name();
    EXPECT_LE(child.end_time_unix_nano(), parent.end_time_unix_nano() + kDoubtNs)
        << child.name() << " ends after " << parent.name();
  }
}

// Between spans of one process: one ends before the next begins.
void ExpectInOrder(const Trace& trace, const std::string& parent,
                   const std::vector<std::string>& names) {
  std::uint64_t end = 0;
  for (const std::string& name : names) {
    for (const CollectedSpan& span : Named(trace, name)) {
      if (span.span.parent_span_id() != parent) continue;
      EXPECT_GE(span.span.start_time_unix_nano(), end) << name;
      end = span.span.end_time_unix_nano();
    }
  }
}

// A whole trace of a step from `source`: every chunk is answered by the worker that it names.
void ExpectWhole(const Trace& trace, const std::string& source) {
  const auto steps = Named(trace, "moe.step");
  ASSERT_EQ(steps.size(), 1U);
  const CollectedSpan& step = steps[0];
  EXPECT_EQ(step.service, source);
  EXPECT_EQ(step.span.status().code(), otlp::v1::STATUS_CODE_UNSPECIFIED);
  ExpectInOrder(trace, step.span.span_id(), {"moe.plan", "moe.combine"});
  EXPECT_EQ(Named(trace, "moe.plan").size(), 1U);
  EXPECT_EQ(Named(trace, "moe.combine").size(), 1U);
  const auto chunks = Named(trace, "moe.chunk");
  const auto serves = Named(trace, "moe.serve");
  EXPECT_FALSE(chunks.empty());
  for (const CollectedSpan& chunk : chunks) {
    EXPECT_EQ(chunk.service, source);
    EXPECT_EQ(chunk.span.parent_span_id(), step.span.span_id());
    if (chunk.span.kind() == otlp::v1::SPAN_KIND_INTERNAL) continue;  // own experts
    const auto serve = std::find_if(serves.begin(), serves.end(), [&](const CollectedSpan& of) {
      return of.span.parent_span_id() == chunk.span.span_id();
    });
    ASSERT_NE(serve, serves.end());
    EXPECT_EQ(serve->service, "switchyard-worker");
    EXPECT_EQ(serve->instance, AttributeOf(chunk.span, "switchyard.worker"));
    for (const char* same : {"switchyard.worker", "switchyard.rows", "switchyard.request_bytes",
                             "switchyard.dtype", "switchyard.step", "switchyard.session",
                             "switchyard.layer", "switchyard.epoch", "switchyard.mode"}) {
      EXPECT_NE(AttributeOf(serve->span, same), "") << same;
      EXPECT_EQ(AttributeOf(serve->span, same), AttributeOf(chunk.span, same)) << same;
    }
    ExpectInOrder(trace, serve->span.span_id(), {"moe.queue", "moe.compute", "moe.reply"});
  }
  ExpectNested(trace);
}

class TracesTest : public Processes {
 protected:
  // `workers` workers that trace with `ratio`.
  void DeployTraced(std::int32_t workers, double ratio, const std::string& endpoint) {
    LocalDeploymentOptions options;
    options.coordinator_flags = {"--trace-ratio", absl::StrCat(ratio), "--trace-endpoint",
                                 endpoint};
    Deploy(workers, std::move(options));
  }
  static void RunSteps(MoeSession& session, int steps) {
    for (int i = 0; i < steps; ++i) {
      Batch batch(7, static_cast<std::uint64_t>(i));
      SY_ASSERT_OK(RunStep(session, batch, kLayer));
    }
  }
  // By then they have sent all that they have to send.
  void End() { SY_EXPECT_OK(deployment_->Stop(std::chrono::seconds(30))); }
};

TEST_F(TracesTest, SpansOfSourceAndWorkersAreOneTrace) {
  for (const char* transport : {"shm", "tcp"}) {
    TraceCollector collector;
    DeployTraced(3, 1, collector.endpoint());
    {
      SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect(transport));
      SY_ASSERT_OK_AND_ASSIGN(const auto session,
                              client->OpenWhenReady({}, testing::kReadyTimeout));
      RunSteps(*session, 5);
    }
    End();

    const auto traces = TracesOf(collector.spans());
    EXPECT_EQ(traces.size(), 5U);
    std::set<std::string> steps;
    for (const auto& [id, trace] : traces) {
      ExpectWhole(trace, "switchyard-client");
      EXPECT_EQ(Named(trace, "moe.chunk").size(), 3U) << "a chunk for each worker";
      for (const auto& step : Named(trace, "moe.step")) {
        steps.insert(AttributeOf(step.span, "switchyard.step"));
        EXPECT_EQ(AttributeOf(step.span, "switchyard.tokens"), "7");
      }
    }
    EXPECT_EQ(steps, (std::set<std::string>{"1", "2", "3", "4", "5"}));
    deployment_.reset();
  }
}

TEST_F(TracesTest, AStepThroughAGatewayBeginsThere) {
  TraceCollector collector;
  DeployTraced(2, 1, collector.endpoint());
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("gateway"));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    RunSteps(*session, 3);
  }
  End();

  const auto traces = TracesOf(collector.spans());
  EXPECT_EQ(traces.size(), 3U);
  for (const auto& [id, trace] : traces) {
    ExpectWhole(trace, "switchyard-worker");
    EXPECT_EQ(Named(trace, "moe.chunk").size(), 2U) << "own experts, and the other worker's";
    EXPECT_EQ(Named(trace, "moe.serve").size(), 1U);
    EXPECT_EQ(Named(trace, "moe.compute").size(), 2U);
  }
}

TEST_F(TracesTest, StepsInLockstepAreTracedAtTheirSource) {
  constexpr int kSteps = 8;
  TraceCollector collector;
  DeployTraced(2, 1, collector.endpoint());
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
    OpenSessionRequest order;
    order.binding = BindingChoice::kCollective;
    SY_ASSERT_OK_AND_ASSIGN(const auto session,
                            client->OpenWhenReady(order, testing::kReadyTimeout));
    RunSteps(*session, kSteps);
    Batch wrong(7, 41);
    wrong.ids[3] = testing::kExperts;
    EXPECT_FALSE(RunStep(*session, wrong, kLayer).ok()) << "refused when it is submitted";
  }
  End();

  const auto traces = TracesOf(collector.spans());
  EXPECT_EQ(traces.size(), static_cast<std::size_t>(kSteps));
  for (const auto& [id, trace] : traces) {
    const auto steps = Named(trace, "moe.step");
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].service, "switchyard-client");
    EXPECT_EQ(AttributeOf(steps[0].span, "switchyard.tokens"), "7");
    EXPECT_EQ(trace.size(), 3U);
    EXPECT_EQ(Named(trace, "moe.exchange").size(), 1U);
    ExpectInOrder(trace, steps[0].span.span_id(), {"moe.plan", "moe.exchange"});
    ExpectNested(trace);
  }
}

// Nothing is agreed on for a step: both sides have to come to the same ones.
TEST_F(TracesTest, AStepIsTracedEverywhereOrNowhere) {
  TraceCollector collector;
  DeployTraced(2, 0.2, collector.endpoint());
  constexpr int kSteps = 200;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    RunSteps(*session, kSteps);
  }
  End();

  const auto traces = TracesOf(collector.spans());
  for (const auto& [id, trace] : traces) ExpectWhole(trace, "switchyard-client");
  EXPECT_GE(traces.size(), 10U);
  EXPECT_LE(traces.size(), 90U);
}

TEST_F(TracesTest, OffSendsNothing) {
  TraceCollector collector;
  DeployTraced(2, 0, collector.endpoint());
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    RunSteps(*session, 20);
  }
  End();
  EXPECT_EQ(collector.calls(), 0);
}

TEST_F(TracesTest, SpansHaveNoSecretsAndNoAddresses) {
  TraceCollector collector;
  DeployTraced(2, 1, collector.endpoint());
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    RunSteps(*session, 2);
  }
  End();
  const std::set<std::string> known{
      "switchyard.session", "switchyard.step",  "switchyard.layer",         "switchyard.epoch",
      "switchyard.mode",    "switchyard.dtype", "switchyard.request_bytes", "switchyard.rows",
      "switchyard.tokens",  "switchyard.chunk", "switchyard.reply_bytes",   "switchyard.worker"};
  ASSERT_FALSE(collector.spans().empty());
  for (const CollectedSpan& span : collector.spans()) {
    EXPECT_EQ(span.span.SerializeAsString().find("127.0.0.1"), std::string::npos);
    for (const auto& attribute : span.span.attributes()) {
      EXPECT_TRUE(known.contains(attribute.key())) << attribute.key();
    }
  }
}

// A collector that takes connections and never says a word, which is worse than none.
TEST_F(TracesTest, ADeadCollectorDelaysNoStep) {
  SilentPort nobody;
  nobody.Listen();
  DeployTraced(2, 1, nobody.endpoint());
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  std::vector<Duration> took;
  const TimePoint begin = SteadyClock().Now();
  // Longer than a call to the collector may take.
  while (SteadyClock().Now() - begin < std::chrono::seconds(7)) {
    const TimePoint before = SteadyClock().Now();
    RunSteps(*session, 1);
    took.push_back(SteadyClock().Now() - before);
  }
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[took.size() * 99 / 100], std::chrono::milliseconds(200));
  EXPECT_LT(took.back(), std::chrono::seconds(2)) << "no step waited for a call's deadline";
  // A client has no page for metrics.
  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(std::chrono::seconds(5)));
  ASSERT_TRUE(report.traces.has_value());
  EXPECT_EQ(report.traces->exported, 0U);
  EXPECT_GT(report.traces->failed, 0U);
  SY_EXPECT_OK(session->Close());
  End();
}

TEST_F(TracesTest, WorkersCountTheirSpans) {
  TraceCollector collector;
  DeployTraced(1, 1, collector.endpoint());
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  RunSteps(*session, 3);

  // Of one series, as text.
  const auto exported = [&]() -> std::string {
    const std::string page =
        testing::RunProgram({absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                             deployment_->coordinator(), "get", "metrics", "w0", "-o", "table"},
                            testing::kReadyTimeout)
            .out;
    for (const absl::string_view line : absl::StrSplit(page, '\n')) {
      const std::vector<std::string> cells = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (cells.size() > 3 && cells[1] == "moe_trace_spans_total" &&
          cells[2] == "result=exported") {
        return cells[3];
      }
    }
    return page;
  };
  const TimePoint until = SteadyClock().Now() + testing::kReadyTimeout;
  // Four spans for each request.
  for (std::string now = exported(); now != "12"; now = exported()) {
    ASSERT_LT(SteadyClock().Now(), until) << now;
  }
}

}  // namespace
}  // namespace switchyard
