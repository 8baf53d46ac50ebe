#include "services/system/metrics_message.h"

namespace switchyard {
namespace {

v1::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return v1::METRIC_TYPE_COUNTER;
    case MetricType::kGauge:
      return v1::METRIC_TYPE_GAUGE;
    case MetricType::kHistogram:
      break;
  }
  return v1::METRIC_TYPE_HISTOGRAM;
}

void EncodeHistogram(const HistogramCounts& in, v1::MetricHistogram* out) {
  const double unit = in.bounds->units_in_one;
  out->set_count(in.count());
  out->set_sum(static_cast<double>(in.sum) / unit);
  for (const std::uint64_t bound : in.bounds->upper) {
    out->add_bounds(static_cast<double>(bound) / unit);
  }
  for (const std::uint64_t bucket : in.buckets) out->add_buckets(bucket);
}

}  // namespace

void Encode(const MetricFamily& in, v1::Metric* out) {
  out->set_name(in.name);
  out->set_help(in.help);
  out->set_type(TypeOf(in.type));
  for (const MetricSample& sample : in.samples) {
    v1::MetricSample* const to = out->add_samples();
    for (const auto& [name, value] : sample.labels) {
      v1::MetricLabel* const label = to->add_labels();
      label->set_name(name);
      label->set_value(value);
    }
    if (sample.histogram.has_value()) {
      EncodeHistogram(*sample.histogram, to->mutable_histogram());
    } else {
      to->set_value(sample.value);
    }
  }
}

}  // namespace switchyard
