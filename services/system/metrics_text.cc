#include "services/system/metrics_text.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "core/base/product_version.h"

namespace switchyard {
namespace {

// Every whole number up to here is a double.
constexpr double kWholeMax = 9'007'199'254'740'992.0;

void AppendValue(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("NaN");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "+Inf" : "-Inf");
  } else if (std::abs(value) <= kWholeMax && std::trunc(value) == value) {
    absl::StrAppend(out, static_cast<std::int64_t>(value));
  } else {
    absl::StrAppendFormat(out, "%.17g", value);
  }
}

absl::string_view NameOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      break;
  }
  return "histogram";
}

void AppendLabel(absl::string_view name, absl::string_view value, char before, std::string* out) {
  absl::StrAppend(out, absl::string_view(&before, 1), name, "=\"",
                  absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                  "\"");
}

// One line. `suffix` is that of a histogram's series; `bound` its label `le`, empty: none.
void AppendSeries(absl::string_view name, absl::string_view suffix, const MetricSample& sample,
                  absl::string_view bound, double value, std::string* out) {
  absl::StrAppend(out, name, suffix);
  char before = '{';
  for (const auto& [label, text] : sample.labels) {
    AppendLabel(label, text, std::exchange(before, ','), out);
  }
  if (!bound.empty()) AppendLabel("le", bound, std::exchange(before, ','), out);
  out->append(before == '{' ? " " : "} ");
  AppendValue(value, out);
  out->push_back('\n');
}

void AppendHistogram(absl::string_view name, const MetricSample& sample, std::string* out) {
  const HistogramCounts& counts = *sample.histogram;
  const HistogramBounds& bounds = *counts.bounds;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < HistogramBounds::kBuckets; ++i) {
    below += counts.buckets[i];
    const std::string bound =
        i < HistogramBounds::kBounds
            ? absl::StrFormat("%g", static_cast<double>(bounds.upper[i]) / bounds.units_in_one)
            : "+Inf";
    AppendSeries(name, "_bucket", sample, bound, static_cast<double>(below), out);
  }
  AppendSeries(name, "_sum", sample, "", static_cast<double>(counts.sum) / bounds.units_in_one,
               out);
  // The sum of what was read above, so that it is never at odds with the last bucket.
  AppendSeries(name, "_count", sample, "", static_cast<double>(below), out);
}

}  // namespace

MetricsText& MetricsText::Begin(MetricType type, absl::string_view name, absl::string_view help) {
  families_.push_back(
      {.type = type, .name = std::string(name), .help = std::string(help), .samples = {}});
  return *this;
}

MetricSample& MetricsText::AddSample(std::initializer_list<MetricLabel> labels) {
  MetricSample& sample = families_.back().samples.emplace_back();
  for (const MetricLabel& label : labels) sample.labels.emplace_back(label.name, label.value);
  return sample;
}

MetricsText& MetricsText::Add(double value, std::initializer_list<MetricLabel> labels) {
  AddSample(labels).value = value;
  return *this;
}

MetricsText& MetricsText::Add(const HistogramCounts& counts,
                              std::initializer_list<MetricLabel> labels) {
  AddSample(labels).histogram = counts;
  return *this;
}

std::string MetricsText::Take() && {
  std::string text;
  for (const MetricFamily& family : families_) {
    absl::StrAppend(&text, "# HELP ", family.name, " ",
                    absl::StrReplaceAll(family.help, {{"\\", "\\\\"}, {"\n", "\\n"}}), "\n# TYPE ",
                    family.name, " ", NameOf(family.type), "\n");
    for (const MetricSample& sample : family.samples) {
      if (sample.histogram.has_value()) {
        AppendHistogram(family.name, sample, &text);
      } else {
        AppendSeries(family.name, "", sample, "", sample.value, &text);
      }
    }
  }
  families_.clear();
  return text;
}

void AddBuildInfo(MetricsText* text) {
  text->Begin(MetricType::kGauge, "moe_build_info", "The program's version; always 1.")
      .Add(1.0, {{"version", kProductVersion}});
}

void AddCalls(const std::vector<CallCounts>& calls, MetricsText* text) {
  text->Begin(MetricType::kCounter, "grpc_server_started_total", "Calls that have begun.");
  for (const CallCounts& call : calls) {
    text->Add(
        call.started,
        {{"grpc_type", call.type}, {"grpc_service", call.service}, {"grpc_method", call.method}});
  }
  text->Begin(MetricType::kCounter, "grpc_server_handled_total",
              "Calls that have ended, by their status code.");
  for (const CallCounts& call : calls) {
    for (std::size_t code = 0; code < kStatusCodes; ++code) {
      if (call.handled[code] == 0) continue;
      text->Add(call.handled[code], {{"grpc_type", call.type},
                                     {"grpc_service", call.service},
                                     {"grpc_method", call.method},
                                     {"grpc_code", StatusCodeLabel(code)}});
    }
  }
  text->Begin(MetricType::kHistogram, "grpc_server_handling_seconds",
              "From the begin of a call to its end.");
  for (const CallCounts& call : calls) {
    text->Add(
        call.seconds,
        {{"grpc_type", call.type}, {"grpc_service", call.service}, {"grpc_method", call.method}});
  }
}

void AddHealth(const Health& health, MetricsText* text) {
  text->Begin(MetricType::kGauge, "moe_live", "1 if /livez answers 200, else 0.")
      .Add(health.live() ? 1.0 : 0.0);
  text->Begin(MetricType::kGauge, "moe_ready", "1 if /readyz answers 200, else 0.")
      .Add(health.ready() ? 1.0 : 0.0);
}

void AddCertificate(std::int64_t not_before_s, std::int64_t not_after_s, MetricsText* text) {
  text->Begin(MetricType::kGauge, "moe_certificate_not_before_timestamp_seconds",
              "Unix time from which the process's certificate is valid.")
      .Add(static_cast<double>(not_before_s));
  text->Begin(MetricType::kGauge, "moe_certificate_not_after_timestamp_seconds",
              "Unix time until which it is valid.")
      .Add(static_cast<double>(not_after_s));
}

}  // namespace switchyard
