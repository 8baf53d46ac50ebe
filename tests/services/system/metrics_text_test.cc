#include "services/system/metrics_text.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/services/system/count_series.h"

namespace switchyard {
namespace {

TEST(MetricsTextTest, WritesHelpAndTypeOnceForAllSamplesOfAFamily) {
  MetricsText text;
  text.Begin(MetricType::kCounter, "frames_total", "Frames.")
      .Add(std::uint64_t{3}, {{"direction", "in"}})
      .Add(std::uint64_t{4}, {{"direction", "out"}, {"path", "shm"}});
  text.Begin(MetricType::kGauge, "links", "Links.").Add(2.0);
  text.Begin(MetricType::kGauge, "empty", "None.");

  EXPECT_EQ(std::move(text).Take(),
            "# HELP frames_total Frames.\n"
            "# TYPE frames_total counter\n"
            "frames_total{direction=\"in\"} 3\n"
            "frames_total{direction=\"out\",path=\"shm\"} 4\n"
            "# HELP links Links.\n"
            "# TYPE links gauge\n"
            "links 2\n"
            "# HELP empty None.\n"
            "# TYPE empty gauge\n");
}

TEST(MetricsTextTest, WritesAHistogramsBucketsAsSumsFromBelow) {
  HistogramCounts waits;
  waits.Observe(std::chrono::microseconds(15));
  waits.Observe(std::chrono::microseconds(15));
  waits.Observe(std::chrono::milliseconds(3));
  waits.Observe(std::chrono::seconds(20));
  MetricsText text;
  text.Begin(MetricType::kHistogram, "wait_seconds", "Waits.").Add(waits, {{"of", "a"}});

  const std::string all = std::move(text).Take();
  for (const char* line :
       {"# TYPE wait_seconds histogram", "wait_seconds_bucket{of=\"a\",le=\"1e-05\"} 0",
        "wait_seconds_bucket{of=\"a\",le=\"2e-05\"} 2",
        "wait_seconds_bucket{of=\"a\",le=\"0.002\"} 2",
        "wait_seconds_bucket{of=\"a\",le=\"0.005\"} 3", "wait_seconds_bucket{of=\"a\",le=\"10\"} 3",
        "wait_seconds_bucket{of=\"a\",le=\"+Inf\"} 4",
        "wait_seconds_sum{of=\"a\"} 20.003029999999999", "wait_seconds_count{of=\"a\"} 4"}) {
    EXPECT_NE(all.find(absl::StrCat(line, "\n")), std::string::npos) << line << "\n" << all;
  }
  EXPECT_EQ(testing::CountSeries(all), 22U);
}

TEST(MetricsTextTest, ABareHistogramHasItsBoundOnly) {
  MetricsText text;
  text.Begin(MetricType::kHistogram, "rows", "Rows.").Add(HistogramCounts(&kCountBounds));
  const std::string all = std::move(text).Take();
  EXPECT_NE(all.find("\nrows_bucket{le=\"1000\"} 0\n"), std::string::npos) << all;
  EXPECT_NE(all.find("\nrows_sum 0\nrows_count 0\n"), std::string::npos) << all;
}

TEST(MetricsTextTest, EscapesHelpAndLabels) {
  MetricsText text;
  text.Begin(MetricType::kGauge, "a", "a \\ and a \"quote\"\nand more")
      .Add(1.0, {{"name", "x\\y\"z\nw"}});

  EXPECT_EQ(std::move(text).Take(),
            "# HELP a a \\\\ and a \"quote\"\\nand more\n"
            "# TYPE a gauge\n"
            "a{name=\"x\\\\y\\\"z\\nw\"} 1\n");
}

TEST(MetricsTextTest, WritesEveryKindOfNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  MetricsText text;
  text.Begin(MetricType::kGauge, "n", "Numbers.")
      .Add(std::numeric_limits<double>::quiet_NaN())
      .Add(infinity)
      .Add(-infinity)
      .Add(0.25)
      .Add(-7.0)
      .Add(1e300)
      .Add(std::uint64_t{1} << 53)
      .Add(std::numeric_limits<std::uint64_t>::max());

  EXPECT_EQ(std::move(text).Take(),
            "# HELP n Numbers.\n# TYPE n gauge\n"
            "n NaN\nn +Inf\nn -Inf\nn 0.25\nn -7\nn 1.0000000000000001e+300\n"
            "n 9007199254740992\nn 1.8446744073709552e+19\n");
}

TEST(MetricsTextTest, SaysTheVersionAndTheHealth) {
  MetricsText text;
  AddBuildInfo(&text);
  AddHealth({.not_live = "", .not_ready = "wait"}, &text);
  AddCertificate(1800000000, 1900000000, &text);

  const std::string all = std::move(text).Take();
  EXPECT_NE(all.find("moe_build_info{version=\"0."), std::string::npos) << all;
  EXPECT_NE(all.find("\nmoe_live 1\n"), std::string::npos) << all;
  EXPECT_NE(all.find("\nmoe_ready 0\n"), std::string::npos) << all;
  for (const char* line : {"\nmoe_certificate_not_before_timestamp_seconds 1800000000\n",
                           "\nmoe_certificate_not_after_timestamp_seconds 1900000000\n"}) {
    EXPECT_NE(all.find(line), std::string::npos) << all;
  }
}

}  // namespace
}  // namespace switchyard
