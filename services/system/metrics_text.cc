#include "services/system/metrics_text.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "services/grpc/version.h"

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

}  // namespace

MetricsText& MetricsText::Begin(MetricType type, absl::string_view name, absl::string_view help) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ",
                  absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}}), "\n# TYPE ", name,
                  type == MetricType::kCounter ? " counter\n" : " gauge\n");
  return *this;
}

MetricsText& MetricsText::Add(double value, std::initializer_list<MetricLabel> labels) {
  text_ += name_;
  char before = '{';
  for (const MetricLabel& label : labels) {
    absl::StrAppend(
        &text_, absl::string_view(&before, 1), label.name, "=\"",
        absl::StrReplaceAll(label.value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
    before = ',';
  }
  text_ += labels.size() == 0 ? " " : "} ";
  AppendValue(value, &text_);
  text_ += '\n';
  return *this;
}

std::string MetricsText::Take() && { return std::exchange(text_, {}); }

void AddBuildInfo(MetricsText* text) {
  text->Begin(MetricType::kGauge, "moe_build_info", "The program's version; always 1.")
      .Add(1.0, {{"version", kProductVersion}});
}

void AddHealth(const Health& health, MetricsText* text) {
  text->Begin(MetricType::kGauge, "moe_live", "1 if /livez answers 200, else 0.")
      .Add(health.live() ? 1.0 : 0.0);
  text->Begin(MetricType::kGauge, "moe_ready", "1 if /readyz answers 200, else 0.")
      .Add(health.ready() ? 1.0 : 0.0);
}

}  // namespace switchyard
