#include "ctl/traces/trace_book.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace switchyard::ctl {
namespace {

constexpr char kPrefix[] = "switchyard.";

std::string TextOf(const otlp::v1::AnyValue& value) {
  if (value.has_int_value()) return absl::StrCat(value.int_value());
  if (value.has_bool_value()) return value.bool_value() ? "true" : "false";
  return value.string_value();
}

std::string AttributeOf(const google::protobuf::RepeatedPtrField<otlp::v1::KeyValue>& attributes,
                        const std::string& key) {
  for (const auto& attribute : attributes) {
    if (attribute.key() == key) return TextOf(attribute.value());
  }
  return "";
}

std::string Microseconds(std::uint64_t from, std::uint64_t to) {
  const auto nanoseconds = static_cast<double>(static_cast<std::int64_t>(to - from));
  return absl::StrFormat("%.1f us", nanoseconds / 1e3);
}

class Tree {
 public:
  explicit Tree(const StepTrace& trace) : trace_(trace) {
    for (const TracedSpan& span : trace_.spans) ids_.insert(span.span.span_id());
    begin_ = ~std::uint64_t{0};
    for (const TracedSpan& span : trace_.spans) {
      begin_ = std::min<std::uint64_t>(begin_, span.span.start_time_unix_nano());
    }
  }

  std::string Text() {
    // Spans without a parent are the root, or parts whose root was lost.
    for (const TracedSpan* span : Where([this](const otlp::v1::Span& each) {
           return !ids_.contains(each.parent_span_id());
         })) {
      Add(*span, 0);
    }
    return text_;
  }

 private:
  template <typename Holds>
  std::vector<const TracedSpan*> Where(Holds holds) const {
    std::vector<const TracedSpan*> found;
    for (const TracedSpan& span : trace_.spans) {
      if (holds(span.span)) found.push_back(&span);
    }
    std::stable_sort(found.begin(), found.end(), [](const TracedSpan* a, const TracedSpan* b) {
      return a->span.start_time_unix_nano() < b->span.start_time_unix_nano();
    });
    return found;
  }
  // `depth`: a stranger's spans may hang on each other in a circle, or deeper than any screen.
  void Add(const TracedSpan& at, std::size_t depth) {
    constexpr std::size_t kDepthMax = 16;
    if (depth > kDepthMax) return;
    const otlp::v1::Span& span = at.span;
    std::string notes;
    for (const char* key : {"worker", "tokens", "rows", "dtype", "request_bytes", "reply_bytes"}) {
      const std::string value = AttributeOf(span.attributes(), absl::StrCat(kPrefix, key));
      if (!value.empty()) absl::StrAppend(&notes, "  ", key, "=", value);
    }
    const std::string error = AttributeOf(span.attributes(), "error.type");
    if (!error.empty()) absl::StrAppend(&notes, "  error=", error);
    const std::string of =
        at.service == "switchyard-worker" ? absl::StrCat(at.service, " ", at.instance) : at.service;
    absl::StrAppendFormat(&text_, "%-20s  %-22s  at %11s  takes %11s%s\n",
                          absl::StrCat(std::string(2 * depth, ' '), span.name()), of,
                          Microseconds(begin_, span.start_time_unix_nano()),
                          Microseconds(span.start_time_unix_nano(), span.end_time_unix_nano()),
                          notes);
    for (const TracedSpan* child : Where([&span](const otlp::v1::Span& each) {
           return each.parent_span_id() == span.span_id();
         })) {
      Add(*child, depth + 1);
    }
  }

  const StepTrace& trace_;
  std::set<std::string> ids_;
  std::uint64_t begin_ = 0;
  std::string text_;
};

}  // namespace

void TraceBook::Add(const otlp::v1::ExportTraceServiceRequest& request, TimePoint now) {
  for (const auto& process : request.resource_spans()) {
    const auto& about = process.resource().attributes();
    for (const auto& scope : process.scope_spans()) {
      for (const otlp::v1::Span& span : scope.spans()) {
        const auto at = open_.find(span.trace_id());
        if (at == open_.end() && open_.size() >= kTracesMax) continue;
        Open& open = at == open_.end() ? open_[span.trace_id()] : at->second;
        if (open.number == 0) {
          open.number = ++last_number_;
          open.trace.id = absl::BytesToHexString(span.trace_id());
        }
        open.last = now;
        if (open.trace.spans.size() >= kSpansMax) continue;
        open.trace.spans.push_back({.service = AttributeOf(about, "service.name"),
                                    .instance = AttributeOf(about, "service.instance.id"),
                                    .span = span});
      }
    }
  }
}

std::vector<StepTrace> TraceBook::TakeQuiet(TimePoint now) {
  std::map<std::uint64_t, StepTrace> quiet;
  for (auto it = open_.begin(); it != open_.end();) {
    if (now - it->second.last < kQuiet) {
      ++it;
      continue;
    }
    quiet[it->second.number] = std::move(it->second.trace);
    it = open_.erase(it);
  }
  std::vector<StepTrace> traces;
  for (auto& [number, trace] : quiet) traces.push_back(std::move(trace));
  return traces;
}

std::string TraceText(const StepTrace& trace) {
  std::string text = absl::StrCat("trace ", trace.id);
  // All spans that say anything say the same about the step.
  for (const char* key : {"session", "step", "layer", "epoch", "mode"}) {
    for (const TracedSpan& span : trace.spans) {
      const std::string value = AttributeOf(span.span.attributes(), absl::StrCat(kPrefix, key));
      if (value.empty()) continue;
      absl::StrAppend(&text, "  ", key, " ", value);
      break;
    }
  }
  return absl::StrCat(text, "\n", Tree(trace).Text());
}

nlohmann::ordered_json TraceJson(const StepTrace& trace) {
  using Json = nlohmann::ordered_json;
  Json spans = Json::array();
  for (const TracedSpan& of : trace.spans) {
    const otlp::v1::Span& span = of.span;
    Json attributes = Json::object();
    for (const auto& attribute : span.attributes()) {
      attributes[attribute.key()] = TextOf(attribute.value());
    }
    spans.push_back({{"name", span.name()},
                     {"span_id", absl::BytesToHexString(span.span_id())},
                     {"parent_span_id", absl::BytesToHexString(span.parent_span_id())},
                     {"service", of.service},
                     {"instance", of.instance},
                     {"start_unix_nano", span.start_time_unix_nano()},
                     {"end_unix_nano", span.end_time_unix_nano()},
                     {"error", span.status().code() == otlp::v1::STATUS_CODE_ERROR},
                     {"attributes", std::move(attributes)}});
  }
  return Json{{"trace_id", trace.id}, {"spans", std::move(spans)}};
}

}  // namespace switchyard::ctl
