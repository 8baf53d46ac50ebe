#include "services/tracing/trace_exporter.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/wall_time.h"
#include "tests/services/tracing/trace_collector.h"
#include "tests/testing/silent_port.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CollectedSpan;
using testing::TraceCollector;

TimePoint Now() { return std::chrono::steady_clock::now(); }

TraceRecord ServeOf(std::uint64_t step) {
  TraceRecord record;
  record.key = {.session = {1, 2}, .source = 3, .step = StepId{step}};
  record.part = TracedPart::kServe;
  record.times = {Now(), Now(), Now(), Now()};
  record.SetWorker("w0");
  return record;
}
constexpr std::size_t kSpansOfServe = 4;

TraceExporterOptions Quick() {
  return {.service = "switchyard-worker",
          .instance = "w0",
          .pause = milliseconds(5),
          .deadline = milliseconds(300),
          .failed_pause = milliseconds(20)};
}

// True once that is so.
template <typename Holds>
bool Eventually(Holds holds) {
  const TimePoint until = Now() + seconds(20);
  while (!holds()) {
    if (Now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(TraceExporterTest, SendsSpansWithTheirProcess) {
  TraceCollector collector;
  TraceExporter exporter(Quick());
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
  for (std::uint64_t step = 1; step <= 3; ++step) tracer->Push(ServeOf(step));

  ASSERT_TRUE(collector.WaitFor([](const auto& all) { return all.size() == 3 * kSpansOfServe; }));

  const std::vector<CollectedSpan> spans = collector.spans();
  EXPECT_EQ(spans[0].service, "switchyard-worker");
  EXPECT_EQ(spans[0].instance, "w0");
  EXPECT_EQ(collector.methods()[0], "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
  ASSERT_TRUE(Eventually([&] { return exporter.counts().exported == 3 * kSpansOfServe; }));
  EXPECT_EQ(exporter.counts().failed, 0U);
  // Close to now: the times are those of the wall.
  const auto wall = static_cast<std::uint64_t>(
      Duration(ReadWallTime().time_since_epoch() + milliseconds(1)).count());
  EXPECT_LT(wall - spans[0].span.start_time_unix_nano(), 60'000'000'000U);
}

TEST(TraceExporterTest, WhatIsOffHasNoThreadAndNoConnection) {
  TraceCollector collector;
  TraceExporter exporter(Quick());
  const auto off = exporter.MakeTracer({.ratio = 0, .endpoint = collector.endpoint()});
  const auto nowhere = exporter.MakeTracer({.ratio = 1, .endpoint = ""});
  const auto follower = exporter.MakeFollower();
  exporter.Follow({.ratio = 0, .endpoint = collector.endpoint()});

  for (const auto& tracer : {off, nowhere, follower}) {
    EXPECT_FALSE(tracer->Samples(ServeOf(1).key));
    tracer->Push(ServeOf(1));
  }
  exporter.Stop(seconds(1));

  EXPECT_EQ(collector.calls(), 0);
  EXPECT_EQ(exporter.counts().exported, 0U);
}

TEST(TraceExporterTest, AFollowerDoesWhatTheCoordinatorSaysLast) {
  TraceCollector first;
  TraceCollector second;
  TraceExporter exporter(Quick());
  const auto tracer = exporter.MakeFollower();

  exporter.Follow({.ratio = 1, .endpoint = first.endpoint()});
  ASSERT_TRUE(tracer->Samples(ServeOf(1).key));
  tracer->Push(ServeOf(1));
  ASSERT_TRUE(first.WaitFor([](const auto& all) { return !all.empty(); }));
  exporter.Follow({.ratio = 1, .endpoint = second.endpoint()});
  tracer->Push(ServeOf(2));
  ASSERT_TRUE(second.WaitFor([](const auto& all) { return !all.empty(); }));
  exporter.Follow({});

  EXPECT_FALSE(tracer->Samples(ServeOf(1).key));
}

TEST(TraceExporterTest, StopSendsWhatIsLeft) {
  TraceCollector collector;
  TraceExporterOptions options = Quick();
  options.pause = seconds(30);
  TraceExporter exporter(options);
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
  for (std::uint64_t step = 0; step < 1000; ++step) tracer->Push(ServeOf(step));

  exporter.Stop(seconds(20));
  exporter.Stop(seconds(20));

  EXPECT_EQ(collector.spans().size(), 1000 * kSpansOfServe);
  EXPECT_LE(collector.calls(), 4) << "in batches";
}

TEST(TraceExporterTest, ACollectorThatDoesNotAnswerCostsItsSpansOnly) {
  TraceCollector collector;
  collector.Hold();
  TraceExporter exporter(Quick());
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
  tracer->Push(ServeOf(1));

  ASSERT_TRUE(Eventually([&] { return exporter.counts().failed == kSpansOfServe; }));

  // Not sent again: the collector may have them.
  EXPECT_EQ(collector.calls(), 1);
  collector.Release();
  tracer->Push(ServeOf(2));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == kSpansOfServe; }));
}

TEST(TraceExporterTest, NobodyThereIsNoLongWait) {
  testing::SilentPort port;  // takes connections and says nothing
  port.Listen();
  TraceExporterOptions options = Quick();
  options.deadline = seconds(60);
  TraceExporter exporter(options);
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = port.endpoint()});
  tracer->Push(ServeOf(1));

  const TimePoint before = Now();
  exporter.Stop(milliseconds(100));

  EXPECT_LT(Now() - before, seconds(5)) << "the grace bounds it, not the deadline of a call";
  EXPECT_EQ(exporter.counts().failed, kSpansOfServe);
}

TEST(TraceExporterTest, CountsWhatTheCollectorRefuses) {
  TraceCollector collector;
  collector.RefuseSpans(1);
  TraceExporter exporter(Quick());
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
  tracer->Push(ServeOf(1));
  ASSERT_TRUE(Eventually([&] { return exporter.counts().failed == 1; }));
  EXPECT_EQ(exporter.counts().exported, kSpansOfServe - 1);

  collector.RefuseSpans(0);
  collector.FailCalls(true);
  tracer->Push(ServeOf(2));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().failed == 1 + kSpansOfServe; }));
}

TEST(TraceExporterTest, AFloodIsCutAndCounted) {
  TraceCollector collector;
  collector.Hold();
  TraceExporter exporter(Quick());
  const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
  const TimePoint before = Now();
  constexpr std::uint64_t kFlood = 100'000;
  for (std::uint64_t step = 0; step < kFlood; ++step) tracer->Push(ServeOf(step));

  EXPECT_LT(Now() - before, seconds(10)) << "nothing waits for the collector";
  EXPECT_GE(exporter.counts().dropped, kFlood / 2);
}

// Once a minute at most, however many calls fail.
TEST(TraceExporterTest, SaysOnceThatSpansAreLost) {
  TraceCollector collector;
  collector.FailCalls(true);
  ::testing::internal::CaptureStderr();
  {
    Logger logger("worker w0", LogLevel::kInfo, LogFormat::kText);
    TraceExporterOptions options = Quick();
    options.logger = &logger;
    TraceExporter exporter(options);
    const auto tracer = exporter.MakeTracer({.ratio = 1, .endpoint = collector.endpoint()});
    for (std::uint64_t call = 1; call <= 3; ++call) {
      tracer->Push(ServeOf(call));
      ASSERT_TRUE(Eventually([&] { return exporter.counts().failed == call * kSpansOfServe; }));
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::HasSubstr("spans of traces are lost"));
  EXPECT_EQ(log.find("lost", log.find("lost") + 4), std::string::npos) << log;
}

}  // namespace
}  // namespace switchyard
