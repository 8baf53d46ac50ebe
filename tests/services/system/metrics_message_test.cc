#include "services/system/metrics_message.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(MetricsMessageTest, SaysWhatThePageSays) {
  HistogramCounts waits;
  waits.Observe(std::chrono::microseconds(15));
  waits.Observe(std::chrono::seconds(30));
  MetricsText page;
  page.Begin(MetricType::kCounter, "rows_total", "Rows.").Add(3.0, {{"via", "a"}, {"of", "b"}});
  page.Begin(MetricType::kHistogram, "wait_seconds", "Waits.").Add(waits);
  page.Begin(MetricType::kGauge, "links", "Links.").Add(0.5);

  v1::Metric rows;
  Encode(page.families()[0], &rows);
  EXPECT_EQ(rows.name(), "rows_total");
  EXPECT_EQ(rows.help(), "Rows.");
  EXPECT_EQ(rows.type(), v1::METRIC_TYPE_COUNTER);
  ASSERT_EQ(rows.samples_size(), 1);
  EXPECT_EQ(rows.samples(0).value(), 3);
  ASSERT_EQ(rows.samples(0).labels_size(), 2);
  EXPECT_EQ(rows.samples(0).labels(1).name(), "of");
  EXPECT_EQ(rows.samples(0).labels(1).value(), "b");
  EXPECT_FALSE(rows.samples(0).has_histogram());

  v1::Metric wait;
  Encode(page.families()[1], &wait);
  EXPECT_EQ(wait.type(), v1::METRIC_TYPE_HISTOGRAM);
  const v1::MetricHistogram& histogram = wait.samples(0).histogram();
  EXPECT_EQ(histogram.count(), 2U);
  EXPECT_DOUBLE_EQ(histogram.sum(), 30.000015);
  ASSERT_EQ(histogram.buckets_size(), histogram.bounds_size() + 1);
  EXPECT_DOUBLE_EQ(histogram.bounds(0), 1e-5);
  EXPECT_EQ(histogram.buckets(1), 1U);
  EXPECT_EQ(histogram.buckets(19), 1U);

  v1::Metric links;
  Encode(page.families()[2], &links);
  EXPECT_EQ(links.type(), v1::METRIC_TYPE_GAUGE);
  EXPECT_EQ(links.samples(0).value(), 0.5);
}

}  // namespace
}  // namespace switchyard
