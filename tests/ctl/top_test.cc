// How busy workers are: what two answers of a worker say, and what is shown of it.
#include "ctl/top.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "ctl/syctl.h"
#include "tests/ctl/scripted_coordinator.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::WorkerMessage;
using ::testing::HasSubstr;

WorkerSample Sample(int second, std::uint64_t rows) {
  WorkerSample sample;
  sample.at = TimePoint(std::chrono::seconds(second));
  sample.answer.set_incarnation("a");
  v1::ExpertStats& experts = *sample.answer.mutable_experts();
  experts.set_rows(rows);
  experts.set_requests(rows / 8);
  experts.set_batches(rows / 32);
  experts.set_refused(rows / 1000);
  experts.set_attachments(3);
  return sample;
}

TEST(TopTest, RatesAreTheDifferenceOverTheTime) {
  const TopRow row = RowOf(WorkerMessage("w0"), Sample(10, 32'000), Sample(12, 96'000));

  EXPECT_TRUE(row.known);
  EXPECT_EQ(row.rows_per_second, 32'000);
  EXPECT_EQ(row.requests_per_second, 4'000);
  EXPECT_EQ(row.rows_per_batch, 32);
  EXPECT_EQ(row.errors, 64U);
  EXPECT_EQ(row.attachments, 3U);
  EXPECT_EQ(TopTable({row}),
            "WORKER  STATE  ROWS/S  REQUESTS/S  ROWS/BATCH  WORK  STEP P50  STEP P99  QUEUE P50  "
            "QUEUE P99  ERRORS  ATTACHMENTS  PROBLEM\n"
            "w0      live   32000   4000        32          -     -         -         -          "
            "-          64      3            -\n")
      << "a worker of an older build does not tell how long its steps take";
}

// `steps` of each kind, which take as long as 150 us, 1.5 ms and 15 us.
void AddSteps(std::uint64_t steps, WorkerSample* sample) {
  const auto add = [&](v1::WorkKind kind, int bucket, int queue_bucket) {
    v1::WorkTimes& times = *sample->answer.add_times();
    times.set_kind(kind);
    for (int i = 0; i < bucket; ++i) times.mutable_step()->add_buckets(0);
    times.mutable_step()->add_buckets(steps);
    times.mutable_step()->mutable_sum()->set_seconds(static_cast<std::int64_t>(steps));
    if (queue_bucket == 0) return;
    for (int i = 0; i < queue_bucket; ++i) times.mutable_queue()->add_buckets(0);
    times.mutable_queue()->add_buckets(steps);
  };
  add(v1::WORK_KIND_DECODE, 4, 1);
  add(v1::WORK_KIND_PREFILL, 7, 4);
  add(v1::WORK_KIND_LOCKSTEP, 1, 0);
}

TEST(TopTest, StepsHaveTheTimesOfTheSecondThatWasMeasured) {
  WorkerSample before = Sample(10, 0);
  WorkerSample after = Sample(11, 0);
  AddSteps(100, &before);
  AddSteps(150, &after);

  const TopRow row = RowOf(WorkerMessage("w0"), before, after);

  ASSERT_EQ(row.times.size(), 3U);
  EXPECT_EQ(row.times[0].step.count(), 50U);
  EXPECT_EQ(row.times[0].step.sum, 50'000'000'000U);
  EXPECT_EQ(TopTable({row}),
            "WORKER  STATE  ROWS/S  REQUESTS/S  ROWS/BATCH  WORK      STEP P50  STEP P99  "
            "QUEUE P50  QUEUE P99  ERRORS  ATTACHMENTS  PROBLEM\n"
            "w0      live   0       0           0           decode    150us     199us     "
            "15us       20us       0       3            -\n"
            "w0      -      -       -           -           prefill   1.5ms     2.0ms     "
            "150us      199us      -       -            -\n"
            "w0      -      -       -           -           lockstep  15us      20us      "
            "-          -          -       -            -\n");
}

// As an old worker that sends none: the rest of the row is shown.
TEST(TopTest, TimesThatCannotBeReadAreLeftOut) {
  WorkerSample after = Sample(11, 800);
  AddSteps(1, &after);
  after.answer.mutable_times(0)->clear_step();

  const TopRow row = RowOf(WorkerMessage("w0"), Sample(10, 0), after);

  EXPECT_TRUE(row.times.empty());
  EXPECT_EQ(row.rows_per_second, 800);
}

TEST(TopTest, ADrainedWorkerServesNothingAnyMore) {
  v1::Worker worker = WorkerMessage("w0");
  worker.set_state(v1::WORKER_STATE_DRAINED);
  WorkerSample after = Sample(12, 96'000);
  AddSteps(5, &after);

  const TopRow row = RowOf(worker, Sample(10, 32'000), after);

  EXPECT_EQ(row.state, "drained");
  EXPECT_EQ(row.rows_per_second, 0) << "what it did before";
  EXPECT_EQ(row.rows_per_batch, 0);
  EXPECT_TRUE(row.times.empty());
}

// Neither passes an attachment.
TEST(TopTest, StepsOfTheGatewayAndOfGroupsCountToo) {
  WorkerSample before = Sample(10, 0);
  WorkerSample after = Sample(11, 0);
  v1::ExpertStats& experts = *after.answer.mutable_experts();
  experts.set_direct_rows(60);
  experts.set_direct_chunks(20);
  experts.set_direct_failed(2);
  v1::GroupStats& groups = *after.answer.mutable_groups();
  groups.set_rows(40);
  groups.set_steps(5);
  groups.set_errors(1);

  const TopRow row = RowOf(WorkerMessage("w0"), before, after);

  EXPECT_EQ(row.rows_per_second, 100);
  EXPECT_EQ(row.requests_per_second, 25);
  EXPECT_EQ(row.rows_per_batch, 4);
  EXPECT_EQ(row.errors, 3U);
}

TEST(TopTest, AnIdleWorkerHasNoRows) {
  const TopRow row = RowOf(WorkerMessage("w0"), Sample(10, 800), Sample(11, 800));

  EXPECT_TRUE(row.known);
  EXPECT_EQ(row.rows_per_second, 0);
  EXPECT_EQ(row.rows_per_batch, 0) << "not NaN";
}

TEST(TopTest, CountersOfTwoProcessesAreNotCompared) {
  WorkerSample later = Sample(11, 8);
  later.answer.set_incarnation("b");

  const TopRow row = RowOf(WorkerMessage("w0"), Sample(10, 800), later);

  EXPECT_FALSE(row.known);
  EXPECT_EQ(row.problem, "its process has restarted");
}

// As one that is stuck: it answers, and plans do without it.
TEST(TopTest, AProblemOfAWorkerThatAnswersIsShown) {
  v1::Worker worker = WorkerMessage("w0");
  worker.set_problem("its data thread stands still");

  const TopRow row = RowOf(worker, Sample(10, 800), Sample(11, 800));

  EXPECT_TRUE(row.known);
  EXPECT_EQ(row.problem, "its data thread stands still");
}

TEST(TopTest, AWorkerOutOfReachSaysSo) {
  ScriptedCoordinator coordinator;
  coordinator.workers.mutable_workers(0)->set_endpoint("127.0.0.1:1");
  coordinator.workers.mutable_workers()->DeleteSubrange(1, 1);

  const SyctlResult result =
      RunSyctl({"top", "-o", "table", "--target", coordinator.endpoint()}, {});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("127.0.0.1:1"));
  const SyctlResult json = RunSyctl({"top", "w0", "--target", coordinator.endpoint()}, {});
  EXPECT_FALSE(Json::parse(json.out)["workers"][0].contains("rows_per_second"));
  EXPECT_EQ(RunSyctl({"top", "w9", "--target", coordinator.endpoint()}, {}).exit_code, 1);
}

}  // namespace
}  // namespace switchyard::ctl
