#include "ctl/traces/trace_book.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace switchyard::ctl {
namespace {

using otlp::v1::ExportTraceServiceRequest;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kTrace(16, '\x01');

void AddText(const std::string& key, const std::string& text,
             google::protobuf::RepeatedPtrField<otlp::v1::KeyValue>* attributes) {
  auto* attribute = attributes->Add();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(text);
}

// Spans of one process.
class Sender {
 public:
  Sender(const std::string& service, const std::string& instance) {
    auto* process = request_.add_resource_spans();
    AddText("service.name", service, process->mutable_resource()->mutable_attributes());
    AddText("service.instance.id", instance, process->mutable_resource()->mutable_attributes());
    spans_ = process->add_scope_spans();
  }
  otlp::v1::Span* Add(const std::string& name, const std::string& id, const std::string& parent,
                      std::uint64_t begin_us, std::uint64_t end_us,
                      const std::string& trace = kTrace) {
    otlp::v1::Span* span = spans_->add_spans();
    span->set_trace_id(trace);
    span->set_span_id(id);
    span->set_parent_span_id(parent);
    span->set_name(name);
    span->set_start_time_unix_nano(1'000'000'000 + begin_us * 1000);
    span->set_end_time_unix_nano(1'000'000'000 + end_us * 1000);
    return span;
  }
  [[nodiscard]] const ExportTraceServiceRequest& request() const { return request_; }

 private:
  ExportTraceServiceRequest request_;
  otlp::v1::ScopeSpans* spans_;
};

TEST(TraceBookTest, JoinsWhatComesFromSeveralProcesses) {
  TraceBook book;
  const TimePoint now{seconds(100)};
  Sender worker("switchyard-worker", "w0");
  worker.Add("moe.serve", "serve", "chunk", 20, 70);
  Sender source("switchyard-client", "abc");
  auto* step = source.Add("moe.step", "step", "", 0, 100);
  AddText("switchyard.step", "17", step->mutable_attributes());
  AddText("switchyard.layer", "3", step->mutable_attributes());
  source.Add("moe.chunk", "chunk", "step", 10, 80);

  book.Add(worker.request(), now);
  EXPECT_TRUE(book.TakeQuiet(now + milliseconds(900)).empty());
  book.Add(source.request(), now + milliseconds(900));
  EXPECT_TRUE(book.TakeQuiet(now + milliseconds(1800)).empty()) << "more may come";
  const auto traces = book.TakeQuiet(now + milliseconds(1900));

  ASSERT_EQ(traces.size(), 1U);
  EXPECT_EQ(TraceText(traces[0]),
            "trace 01010101010101010101010101010101  step 17  layer 3\n"
            "moe.step              switchyard-client       at      0.0 us  takes    100.0 us\n"
            "  moe.chunk           switchyard-client       at     10.0 us  takes     70.0 us\n"
            "    moe.serve         switchyard-worker w0    at     20.0 us  takes     50.0 us\n");
  EXPECT_TRUE(book.TakeQuiet(now + seconds(60)).empty()) << "it was taken";
}

TEST(TraceBookTest, ShowsErrorsAndPartsWithoutTheirRoot) {
  TraceBook book;
  Sender worker("switchyard-worker", "w0");
  auto* serve = worker.Add("moe.serve", "serve", "gone", 20, 70);
  AddText("error.type", "STALE_EPOCH", serve->mutable_attributes());
  serve->mutable_status()->set_code(otlp::v1::STATUS_CODE_ERROR);
  book.Add(worker.request(), TimePoint{});

  const auto traces = book.TakeQuiet(TimePoint{seconds(2)});

  ASSERT_EQ(traces.size(), 1U);
  EXPECT_THAT(TraceText(traces[0]), HasSubstr("\nmoe.serve "));
  EXPECT_THAT(TraceText(traces[0]), HasSubstr("error=STALE_EPOCH"));
  const nlohmann::ordered_json json = TraceJson(traces[0]);
  EXPECT_EQ(json["trace_id"], "01010101010101010101010101010101");
  EXPECT_EQ(json["spans"][0]["name"], "moe.serve");
  EXPECT_EQ(json["spans"][0]["service"], "switchyard-worker");
  EXPECT_EQ(json["spans"][0]["error"], true);
  EXPECT_EQ(json["spans"][0]["attributes"]["error.type"], "STALE_EPOCH");
}

// Anybody can send spans to the port.
TEST(TraceBookTest, IsBoundedAndEndsOnACircle) {
  TraceBook book;
  Sender stranger("x", "y");
  for (std::size_t i = 0; i < 2 * TraceBook::kTracesMax; ++i) {
    stranger.Add("s", "a", "b", 0, 1, std::to_string(i));
  }
  for (std::size_t i = 0; i < 2 * TraceBook::kSpansMax; ++i) {
    stranger.Add("s", std::to_string(i), std::to_string(i + 1), 0, 1, "0");
  }
  book.Add(stranger.request(), TimePoint{});
  const auto traces = book.TakeQuiet(TimePoint{seconds(2)});
  EXPECT_EQ(traces.size(), TraceBook::kTracesMax);
  EXPECT_EQ(traces[0].spans.size(), TraceBook::kSpansMax);

  Sender circle("x", "y");
  circle.Add("root", "root", "", 0, 1);
  circle.Add("child", "root", "root", 0, 1);  // its own parent
  book.Add(circle.request(), TimePoint{});
  EXPECT_LT(TraceText(book.TakeQuiet(TimePoint{seconds(2)})[0]).size(), std::size_t{100'000});
}

}  // namespace
}  // namespace switchyard::ctl
