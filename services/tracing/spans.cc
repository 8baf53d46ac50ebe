#include "services/tracing/spans.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

#include "core/dispatch_mode.h"
#include "core/format/dtype.h"

namespace switchyard {
namespace {

using otlp::v1::Span;

template <typename Id>
std::string BytesOf(const Id& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

void AddText(const char* key, absl::string_view text, Span* span) {
  auto* attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(std::string(text));
}

void AddNumber(const char* key, std::uint64_t number, Span* span) {
  auto* attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_int_value(static_cast<std::int64_t>(number));
}

// The spans of one record.
class Spans {
 public:
  Spans(const TraceRecord& record, Duration wall, otlp::v1::ScopeSpans* out)
      : record_(record),
        worker_(record.worker.data()),
        trace_(BytesOf(TraceIdOf(record.key))),
        wall_(wall),
        out_(out) {}

  // A span from the time `from` of the record to `to`. Null, without one, if `from` was not
  // reached; it ends with the record if `to` was not.
  Span* Add(const char* name, SpanRole role, std::size_t from, std::size_t to, std::size_t last) {
    const TimePoint begin = record_.times[from];
    if (begin == TimePoint{}) return nullptr;
    const TimePoint end = record_.times[record_.times[to] == TimePoint{} ? last : to];
    Span* span = out_->add_spans();
    span->set_trace_id(trace_);
    span->set_span_id(IdOf(role));
    span->set_name(name);
    span->set_kind(otlp::v1::SPAN_KIND_INTERNAL);
    span->set_start_time_unix_nano(WallOf(begin));
    span->set_end_time_unix_nano(WallOf(std::max(begin, end)));
    return span;
  }
  void AddPart(const char* name, SpanRole role, SpanRole parent, std::size_t from, std::size_t to,
               std::size_t last) {
    if (Span* span = Add(name, role, from, to, last)) span->set_parent_span_id(IdOf(parent));
  }
  [[nodiscard]] std::string IdOf(SpanRole role) const {
    const bool whole = role == SpanRole::kStep || role == SpanRole::kPlan ||
                       role == SpanRole::kCombine || role == SpanRole::kExchange;
    return BytesOf(whole ? SpanIdOf(record_.key, role)
                         : SpanIdOf(record_.key, role, worker_, record_.chunk));
  }
  // Adds the attributes that all spans with attributes have.
  void Describe(Span* span) const {
    AddText("switchyard.session", ToHex(record_.key.session), span);
    AddNumber("switchyard.step", record_.key.step.value, span);
    AddNumber("switchyard.layer", static_cast<std::uint64_t>(record_.layer.value), span);
    AddNumber("switchyard.epoch", record_.epoch.value, span);
    AddText("switchyard.mode", DispatchModeName(record_.mode), span);
    if (record_.code == absl::StatusCode::kOk) return;
    AddText("error.type", ReasonName(record_.reason), span);
    // The message of the error is left out: it may have addresses in it.
    span->mutable_status()->set_code(otlp::v1::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(absl::StatusCodeToString(record_.code));
  }
  void DescribeChunk(Span* span) const {
    Describe(span);
    AddText("switchyard.worker", worker_, span);
    AddNumber("switchyard.chunk", record_.chunk, span);
    AddText("switchyard.dtype", DispatchDtypeName(record_.dtype), span);
    AddNumber("switchyard.rows", record_.rows, span);
    AddNumber("switchyard.request_bytes", record_.request_bytes, span);
    AddNumber("switchyard.reply_bytes", record_.reply_bytes, span);
  }

 private:
  [[nodiscard]] std::uint64_t WallOf(TimePoint at) const {
    return static_cast<std::uint64_t>((at.time_since_epoch() + wall_).count());
  }

  const TraceRecord& record_;
  const absl::string_view worker_;
  const std::string trace_;
  const Duration wall_;
  otlp::v1::ScopeSpans* const out_;
};

// The step, which ends with the time `last` of its record, and its plan.
bool AddWhole(const TraceRecord& record, std::size_t last, Spans* spans) {
  Span* step = spans->Add("moe.step", SpanRole::kStep, 0, last, last);
  if (step == nullptr) return false;
  spans->Describe(step);
  AddNumber("switchyard.tokens", record.rows, step);
  spans->AddPart("moe.plan", SpanRole::kPlan, SpanRole::kStep, 0, 1, last);
  return true;
}

void AddStep(const TraceRecord& record, Spans* spans) {
  if (!AddWhole(record, 3, spans)) return;
  spans->AddPart("moe.combine", SpanRole::kCombine, SpanRole::kStep, 2, 3, 3);
}

void AddLockstep(const TraceRecord& record, Spans* spans) {
  if (!AddWhole(record, 2, spans)) return;
  spans->AddPart("moe.exchange", SpanRole::kExchange, SpanRole::kStep, 1, 2, 2);
}

void AddChunk(const TraceRecord& record, Spans* spans) {
  Span* chunk = spans->Add("moe.chunk", SpanRole::kChunk, 0, 2, 2);
  if (chunk == nullptr) return;
  chunk->set_parent_span_id(spans->IdOf(SpanRole::kStep));
  spans->DescribeChunk(chunk);
  spans->AddPart("moe.dispatch", SpanRole::kDispatch, SpanRole::kChunk, 0, 1, 2);
  if (record.part == TracedPart::kOwnChunk) {
    // No frame, and no worker that writes anything down: its experts are in this process.
    spans->AddPart("moe.compute", SpanRole::kCompute, SpanRole::kChunk, 1, 2, 2);
  } else {
    chunk->set_kind(otlp::v1::SPAN_KIND_CLIENT);
  }
}

void AddServe(Spans* spans) {
  Span* serve = spans->Add("moe.serve", SpanRole::kServe, 0, 3, 3);
  if (serve == nullptr) return;
  serve->set_kind(otlp::v1::SPAN_KIND_SERVER);
  serve->set_parent_span_id(spans->IdOf(SpanRole::kChunk));
  spans->DescribeChunk(serve);
  spans->AddPart("moe.queue", SpanRole::kQueue, SpanRole::kServe, 0, 1, 3);
  spans->AddPart("moe.compute", SpanRole::kCompute, SpanRole::kServe, 1, 2, 3);
  spans->AddPart("moe.reply", SpanRole::kReply, SpanRole::kServe, 2, 3, 3);
}

}  // namespace

void AppendSpans(const TraceRecord& record, Duration wall, otlp::v1::ScopeSpans* out) {
  Spans spans(record, wall, out);
  switch (record.part) {
    case TracedPart::kStep:
      return AddStep(record, &spans);
    case TracedPart::kLockstep:
      return AddLockstep(record, &spans);
    case TracedPart::kChunk:
    case TracedPart::kOwnChunk:
      return AddChunk(record, &spans);
    case TracedPart::kServe:
      return AddServe(&spans);
  }
}

}  // namespace switchyard
