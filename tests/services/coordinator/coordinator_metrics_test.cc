#include "services/coordinator/coordinator_metrics.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/system/count_series.h"

namespace switchyard {
namespace {

using testing::CountSeries;
using ::testing::HasSubstr;
using ::testing::Not;

CoordinatorView AView() {
  CoordinatorView view;
  for (const WorkerState state :
       {WorkerState::kLive, WorkerState::kLive, WorkerState::kStuck, WorkerState::kDrained}) {
    WorkerView worker;
    worker.id = absl::StrCat("w", view.workers.size());
    worker.state = state;
    view.workers.push_back(worker);
  }
  view.workers[1].capabilities.device = DeviceKind::kCuda;
  DeploymentView a;
  a.spec.name = "a";
  a.state = DeploymentState::kServing;
  a.sessions = 3;
  a.changes = {.served = 7, .failed = 2};
  auto update = std::make_shared<PlanUpdate>();
  update->plan.epoch = Epoch{9};
  a.serving = update;
  DeploymentView b;
  b.spec.name = "b";
  view.deployments = {a, b};
  for (int i = 0; i < 7; ++i) view.times.change_served.Observe(std::chrono::milliseconds(40));
  view.times.change_failed.Observe(std::chrono::seconds(30));
  view.times.applied.Observe(std::chrono::seconds(3));
  view.times.refused.Observe(std::chrono::milliseconds(1));
  return view;
}

TEST(CoordinatorMetricsTest, CountsByStateAndDevice) {
  DriverCounters counters;
  counters.store_writes = 5;
  counters.store_writes_failed = 1;
  counters.turns = 100;

  const std::string text = CoordinatorMetrics(AView(), counters, {}).Take();

  for (const char* line :
       {"moe_workers{state=\"live\",device=\"cpu\"} 1",
        "moe_workers{state=\"live\",device=\"cuda\"} 1",
        "moe_workers{state=\"stuck\",device=\"cpu\"} 1",
        "moe_workers{state=\"drained\",device=\"cpu\"} 1",
        "moe_workers{state=\"leaving\",device=\"cpu\"} 0",
        "moe_deployments{state=\"serving\"} 1",
        "moe_deployments{state=\"pending\"} 1",
        "moe_plan_epoch{deployment=\"a\"} 9",
        "moe_plan_epoch{deployment=\"b\"} 0",
        "moe_sessions_open{deployment=\"a\"} 3",
        "moe_plan_transitions_total{deployment=\"a\",result=\"served\"} 7",
        "moe_plan_transitions_total{deployment=\"a\",result=\"failed\"} 2",
        "moe_store_writes_total{result=\"ok\"} 5",
        "moe_store_writes_total{result=\"failed\"} 1",
        "moe_coordinator_turns_total 100",
        "moe_ready 1",
        "moe_plan_apply_duration_seconds_bucket{result=\"served\",le=\"0.02\"} 0",
        "moe_plan_apply_duration_seconds_bucket{result=\"served\",le=\"0.05\"} 7",
        "moe_plan_apply_duration_seconds_sum{result=\"failed\"} 30",
        "moe_deployment_apply_duration_seconds_sum{result=\"ok\"} 3",
        "moe_deployment_apply_duration_seconds_count{result=\"error\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

// The bound that docs/METRICS.md states.
TEST(CoordinatorMetricsTest, SeriesDoNotGrowWithWorkersOrExperts) {
  CoordinatorView view = AView();
  const DriverCounters counters;
  EXPECT_EQ(CountSeries(CoordinatorMetrics({}, counters, {}).Take()), 124U);
  EXPECT_EQ(CountSeries(CoordinatorMetrics(view, counters, {}).Take()), 124U + 2 * 4);

  // 61 layers of 256 experts on 32 workers, all of it in the plan that serves.
  view.workers.resize(1);
  auto update = std::make_shared<PlanUpdate>();
  update->plan.epoch = Epoch{9};
  for (int w = 0; w < 32; ++w) {
    view.workers.push_back(view.workers[0]);
    view.workers.back().id = absl::StrCat("rank-", w);
    update->plan.workers.emplace_back().id = view.workers.back().id;
  }
  for (int l = 0; l < 61; ++l) {
    LayerPlacement& layer = update->plan.layers.emplace_back();
    layer.layer = LayerId{l};
    for (int e = 0; e < 256; ++e) {
      layer.experts.push_back(
          {.expert = ExpertId{e}, .worker = WorkerOrdinal{e / 8}, .slot = SlotId{e % 8}});
    }
    view.deployments[0].layers.push_back(layer.layer);
  }
  update->plan.shape.experts = view.deployments[0].shape.experts = 256;
  view.deployments[0].serving = update;
  const std::string text = CoordinatorMetrics(view, counters, {}).Take();
  EXPECT_EQ(CountSeries(text), 124U + 2 * 4);
  EXPECT_THAT(text, Not(HasSubstr("rank-")));
}

}  // namespace
}  // namespace switchyard
