// Writes metrics in Prometheus' text format, version 0.0.4.
//
//   MetricsText text;
//   text.Begin(MetricType::kCounter, "moe_frames_total", "Frames that passed.");
//   text.Add(12, {{"direction", "in"}});
//   text.Begin(MetricType::kGauge, "moe_links_open", "Links that are open.").Add(3);
//   std::move(text).Take();
//
// A value is collected by whoever serves a scrape, from views that exist anyway: there is no
// registry, and nothing is kept between two scrapes. Names and label names are literals of the
// caller, of [a-z_] only; each family is begun once. Not thread-safe; linear in what is written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

#include "services/system/health_monitor.h"

namespace switchyard {

enum class MetricType : std::uint8_t { kCounter, kGauge };

struct MetricLabel {
  absl::string_view name;
  absl::string_view value;  // any UTF-8; escaped
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
  // All that was written. It ends with a line feed, as the format demands.
  [[nodiscard]] std::string Take() &&;

 private:
  std::string text_;
  std::string name_;  // of the family
};

// The value of the Content-Type header.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// moe_build_info{version}, which has the value 1.
void AddBuildInfo(MetricsText* text);
// moe_live and moe_ready.
void AddHealth(const Health& health, MetricsText* text);

}  // namespace switchyard
