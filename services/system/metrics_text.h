// Writes metrics in Prometheus' text format, version 0.0.4.
//
//   MetricsText text;
//   text.Begin(MetricType::kCounter, "moe_frames_total", "Frames that passed.");
//   text.Add(12, {{"direction", "in"}});
//   text.Begin(MetricType::kGauge, "moe_links_open", "Links that are open.").Add(3);
//   text.Begin(MetricType::kHistogram, "moe_wait_seconds", "Waits.").Add(waits.Counts());
//   std::move(text).Take();
//
// The same metrics go to syctl as messages (services/convert/metrics.h); both are made from
// families().
//
// A value is collected by whoever serves a scrape, from views that exist anyway: there is no
// registry, and nothing is kept between two scrapes. Names and label names are literals of the
// caller, of [a-z_] only; each family is begun once. Not thread-safe; linear in what is written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/histogram.h"
#include "services/grpc/call_counter.h"
#include "services/system/health_monitor.h"

namespace switchyard {

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

struct MetricLabel {
  absl::string_view name;
  absl::string_view value;  // any UTF-8; escaped
};

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
  std::optional<HistogramCounts> histogram;  // instead of a value
};
struct MetricFamily {
  MetricType type = MetricType::kGauge;
  std::string name;
  std::string help;
  std::vector<MetricSample> samples;
};

class MetricsText {
 public:
  // Begins a family: its HELP and TYPE. `help` may be any UTF-8.
  MetricsText& Begin(MetricType type, absl::string_view name, absl::string_view help);
  // Adds one sample to the family that was begun last. Whole numbers below 2^53 are written as
  // such; infinities and NaN as +Inf, -Inf and NaN.
  MetricsText& Add(double value, std::initializer_list<MetricLabel> labels = {});
  // For counters, which are whole.
  MetricsText& Add(std::uint64_t value, std::initializer_list<MetricLabel> labels = {}) {
    return Add(static_cast<double>(value), labels);
  }
  // One more histogram of the family.
  MetricsText& Add(const HistogramCounts& counts, std::initializer_list<MetricLabel> labels = {});
  // All that was added, as text. It ends with a line feed, as the format demands.
  [[nodiscard]] std::string Take() &&;
  [[nodiscard]] const std::vector<MetricFamily>& families() const { return families_; }

 private:
  MetricSample& AddSample(std::initializer_list<MetricLabel> labels);

  std::vector<MetricFamily> families_;
};

// The value of the Content-Type header.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// moe_build_info{version}, which has the value 1.
void AddBuildInfo(MetricsText* text);
// grpc_server_started_total, grpc_server_handled_total and grpc_server_handling_seconds, with the
// labels that go-grpc-prometheus gave them, which dashboards know.
void AddCalls(const std::vector<CallCounts>& calls, MetricsText* text);
// moe_live and moe_ready.
void AddHealth(const Health& health, MetricsText* text);
// moe_certificate_not_before_timestamp_seconds and moe_certificate_not_after_timestamp_seconds, in
// Unix time.
void AddCertificate(std::int64_t not_before_s, std::int64_t not_after_s, MetricsText* text);

}  // namespace switchyard
