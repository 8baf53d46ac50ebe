#include "ctl/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/syctl.h"
#include "tests/ctl/scripted_coordinator.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Metric Counter(const std::string& name, double value) {
  v1::Metric metric;
  metric.set_name(name);
  metric.set_type(v1::METRIC_TYPE_COUNTER);
  metric.add_samples()->set_value(value);
  return metric;
}

// 98 values of up to 1 ms, and 2 of more than 10 ms.
v1::Metric Times(const std::string& name) {
  v1::Metric metric;
  metric.set_name(name);
  metric.set_type(v1::METRIC_TYPE_HISTOGRAM);
  v1::MetricSample* const sample = metric.add_samples();
  v1::MetricLabel* const label = sample->add_labels();
  label->set_name("phase");
  label->set_value("decode");
  v1::MetricHistogram* const histogram = sample->mutable_histogram();
  histogram->set_count(100);
  histogram->set_sum(0.15);
  for (const double bound : {0.001, 0.01}) histogram->add_bounds(bound);
  for (const std::uint64_t bucket : {98, 0, 2}) histogram->add_buckets(bucket);
  return metric;
}

TEST(MetricsTest, TheTableHasMeansAndQuantiles) {
  ProgramMetrics worker{"w0", "", {}};
  *worker.metrics.Add() = Times("moe_request_duration_seconds");
  *worker.metrics.Add() = Counter("moe_rows_total", 12'345'678);

  EXPECT_EQ(MetricsTable({worker}, false),
            "SOURCE  METRIC                        LABELS        VALUE     MEAN   P50    P99\n"
            "w0      moe_request_duration_seconds  phase=decode  100       1.5ms  510us  >10.0ms\n"
            "w0      moe_rows_total                -             12345678  -      -      -\n");
}

TEST(MetricsTest, RowsAreNoTimes) {
  ProgramMetrics worker{"w0", "", {}};
  *worker.metrics.Add() = Times("moe_batch_rows");
  EXPECT_THAT(MetricsTable({worker}, false), Not(HasSubstr("ms")));
}

TEST(MetricsTest, WhatIsZeroOrUnimportantIsOnlyInTheWholeList) {
  ProgramMetrics worker{"w0", "", {}};
  *worker.metrics.Add() = Counter("moe_ready", 0);
  *worker.metrics.Add() = Counter("moe_rows_total", 0);
  *worker.metrics.Add() = Counter("moe_data_thread_turns_total", 7);

  const std::string important = MetricsTable({worker}, false);
  EXPECT_THAT(important, HasSubstr("moe_ready")) << "a program that is not ready is no detail";
  EXPECT_THAT(important, Not(HasSubstr("moe_rows_total")));
  EXPECT_THAT(important, Not(HasSubstr("moe_data_thread_turns_total")));
  const std::string all = MetricsTable({worker}, true);
  EXPECT_THAT(all, HasSubstr("moe_rows_total"));
  EXPECT_THAT(all, HasSubstr("moe_data_thread_turns_total"));
}

TEST(MetricsTest, AWorkerOutOfReachSaysSoBelowTheTable) {
  ScriptedCoordinator coordinator;
  *coordinator.metrics.add_metrics() = Counter("moe_sessions_open", 3);
  for (v1::Worker& worker : *coordinator.workers.mutable_workers()) {
    worker.set_endpoint("127.0.0.1:1");
  }

  const SyctlResult table =
      RunSyctl({"get", "metrics", "-o", "table", "--target", coordinator.endpoint()}, {});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("coordinator  moe_sessions_open"));
  EXPECT_THAT(table.out, HasSubstr("\nw1: "));
  EXPECT_THAT(table.out, HasSubstr("127.0.0.1:1"));

  const Json json = Json::parse(
      RunSyctl({"get", "metrics", "coordinator", "--target", coordinator.endpoint()}, {}).out);
  ASSERT_EQ(json["programs"].size(), 1U);
  EXPECT_EQ(json["programs"][0]["metrics"][0]["name"], "moe_sessions_open");
  EXPECT_EQ(json["programs"][0]["metrics"][0]["samples"][0]["value"], 3);
  EXPECT_EQ(RunSyctl({"get", "metrics", "w9", "--target", coordinator.endpoint()}, {}).exit_code,
            1);
}

}  // namespace
}  // namespace switchyard::ctl
