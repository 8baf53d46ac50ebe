#include "services/tracing/spans.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/tracing/trace_collector.h"

namespace switchyard {
namespace {

using std::chrono::microseconds;
using testing::AttributeOf;

constexpr Duration kWall = std::chrono::hours(1);

TimePoint At(int us) { return TimePoint(microseconds(us)); }
std::uint64_t WallOf(int us) {
  return static_cast<std::uint64_t>((kWall + Duration(microseconds(us))).count());
}

TraceRecord RecordOf(TracedPart part, std::array<TimePoint, 4> times) {
  TraceRecord record;
  record.key = {.session = {1, 2}, .source = 3, .step = StepId{4}};
  record.part = part;
  record.mode = DispatchMode::kLowLatency;
  record.dtype = DispatchDtype::kFp8;
  record.layer = LayerId{5};
  record.epoch = Epoch{6};
  record.chunk = 1;
  record.rows = 7;
  record.request_bytes = 70;
  record.reply_bytes = 140;
  record.times = times;
  record.SetWorker("w1");
  return record;
}

std::map<std::string, otlp::v1::Span> SpansOf(const TraceRecord& record) {
  otlp::v1::ScopeSpans out;
  AppendSpans(record, kWall, &out);
  std::map<std::string, otlp::v1::Span> spans;
  for (const auto& span : out.spans()) {
    EXPECT_TRUE(spans.emplace(span.name(), span).second) << span.name() << " twice";
    EXPECT_EQ(span.trace_id().size(), 16U);
    EXPECT_EQ(span.span_id().size(), 8U);
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
  }
  return spans;
}

std::string Names(const std::map<std::string, otlp::v1::Span>& spans) {
  std::string names;
  for (const auto& [name, span] : spans) absl::StrAppend(&names, name, " ");
  return names;
}

void ExpectTimes(const otlp::v1::Span& span, int from, int to) {
  EXPECT_EQ(span.start_time_unix_nano(), WallOf(from)) << span.name();
  EXPECT_EQ(span.end_time_unix_nano(), WallOf(to)) << span.name();
}

TEST(SpansTest, AStepHasItsPlanAndItsCombine) {
  auto spans = SpansOf(RecordOf(TracedPart::kStep, {At(10), At(20), At(70), At(90)}));

  EXPECT_EQ(Names(spans), "moe.combine moe.plan moe.step ");
  const auto& step = spans["moe.step"];
  ExpectTimes(step, 10, 90);
  ExpectTimes(spans["moe.plan"], 10, 20);
  ExpectTimes(spans["moe.combine"], 70, 90);
  EXPECT_TRUE(step.parent_span_id().empty()) << "the root";
  EXPECT_EQ(spans["moe.plan"].parent_span_id(), step.span_id());
  EXPECT_EQ(spans["moe.combine"].parent_span_id(), step.span_id());
  EXPECT_EQ(AttributeOf(step, "switchyard.session"), "00000000000000010000000000000002");
  EXPECT_EQ(AttributeOf(step, "switchyard.step"), "4");
  EXPECT_EQ(AttributeOf(step, "switchyard.layer"), "5");
  EXPECT_EQ(AttributeOf(step, "switchyard.epoch"), "6");
  EXPECT_EQ(AttributeOf(step, "switchyard.mode"), "low_latency");
  EXPECT_EQ(AttributeOf(step, "switchyard.tokens"), "7");
  EXPECT_EQ(step.status().code(), otlp::v1::STATUS_CODE_UNSPECIFIED);
}

// What two processes write down apart has to become one tree.
TEST(SpansTest, TheWorkersSpansHangOnTheSources) {
  auto source = SpansOf(RecordOf(TracedPart::kChunk, {At(20), At(25), At(70), {}}));
  auto worker = SpansOf(RecordOf(TracedPart::kServe, {At(30), At(40), At(60), At(65)}));
  auto step = SpansOf(RecordOf(TracedPart::kStep, {At(10), At(20), At(70), At(90)}));

  EXPECT_EQ(Names(source), "moe.chunk moe.dispatch ");
  EXPECT_EQ(Names(worker), "moe.compute moe.queue moe.reply moe.serve ");
  const auto& chunk = source["moe.chunk"];
  const auto& serve = worker["moe.serve"];
  EXPECT_EQ(chunk.parent_span_id(), step["moe.step"].span_id());
  EXPECT_EQ(source["moe.dispatch"].parent_span_id(), chunk.span_id());
  EXPECT_EQ(serve.parent_span_id(), chunk.span_id());
  for (const char* part : {"moe.queue", "moe.compute", "moe.reply"}) {
    EXPECT_EQ(worker[part].parent_span_id(), serve.span_id()) << part;
    EXPECT_EQ(worker[part].trace_id(), step["moe.step"].trace_id()) << part;
  }
  EXPECT_EQ(chunk.kind(), otlp::v1::SPAN_KIND_CLIENT);
  EXPECT_EQ(serve.kind(), otlp::v1::SPAN_KIND_SERVER);
  ExpectTimes(chunk, 20, 70);
  ExpectTimes(source["moe.dispatch"], 20, 25);
  ExpectTimes(serve, 30, 65);
  ExpectTimes(worker["moe.queue"], 30, 40);
  ExpectTimes(worker["moe.compute"], 40, 60);
  ExpectTimes(worker["moe.reply"], 60, 65);
  for (const auto* span : {&chunk, &serve}) {
    EXPECT_EQ(AttributeOf(*span, "switchyard.worker"), "w1");
    EXPECT_EQ(AttributeOf(*span, "switchyard.chunk"), "1");
    EXPECT_EQ(AttributeOf(*span, "switchyard.dtype"), "fp8");
    EXPECT_EQ(AttributeOf(*span, "switchyard.rows"), "7");
    EXPECT_EQ(AttributeOf(*span, "switchyard.request_bytes"), "70");
    EXPECT_EQ(AttributeOf(*span, "switchyard.reply_bytes"), "140");
  }
}

TEST(SpansTest, OwnExpertsOfAGatewayComputeWithinTheChunk) {
  auto spans = SpansOf(RecordOf(TracedPart::kOwnChunk, {At(20), At(25), At(70), {}}));

  EXPECT_EQ(Names(spans), "moe.chunk moe.compute moe.dispatch ");
  EXPECT_EQ(spans["moe.chunk"].kind(), otlp::v1::SPAN_KIND_INTERNAL);
  EXPECT_EQ(spans["moe.compute"].parent_span_id(), spans["moe.chunk"].span_id());
  ExpectTimes(spans["moe.compute"], 25, 70);
}

TEST(SpansTest, AFailureSaysItsReasonAndNoText) {
  TraceRecord record = RecordOf(TracedPart::kServe, {At(30), {}, {}, At(65)});
  record.SetStatus(MakeError(absl::StatusCode::kUnavailable, Reason::kStaleEpoch,
                             "epoch 6 at 10.0.0.7:9999 is gone"));

  auto spans = SpansOf(record);

  EXPECT_EQ(Names(spans), "moe.queue moe.serve ") << "it was never computed";
  const auto& serve = spans["moe.serve"];
  EXPECT_EQ(serve.status().code(), otlp::v1::STATUS_CODE_ERROR);
  EXPECT_EQ(serve.status().message(), "UNAVAILABLE");
  EXPECT_EQ(AttributeOf(serve, "error.type"), "STALE_EPOCH");
  EXPECT_EQ(serve.SerializeAsString().find("10.0.0.7"), std::string::npos);
}

TEST(SpansTest, AStepWithoutAnAnswerHasNoCombine) {
  EXPECT_EQ(Names(SpansOf(RecordOf(TracedPart::kStep, {At(10), At(20), {}, At(90)}))),
            "moe.plan moe.step ");
}

TEST(SpansTest, AStepInLockstepHasWhatItsDeviceTook) {
  auto spans = SpansOf(RecordOf(TracedPart::kLockstep, {At(10), At(20), At(90), {}}));

  EXPECT_EQ(Names(spans), "moe.exchange moe.plan moe.step ");
  ExpectTimes(spans["moe.step"], 10, 90);
  ExpectTimes(spans["moe.plan"], 10, 20);
  ExpectTimes(spans["moe.exchange"], 20, 90);
  EXPECT_EQ(spans["moe.exchange"].parent_span_id(), spans["moe.step"].span_id());
  EXPECT_EQ(AttributeOf(spans["moe.step"], "switchyard.tokens"), "7");
}

}  // namespace
}  // namespace switchyard
