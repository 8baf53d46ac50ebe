// How busy workers are: what two answers of a worker say, and what is shown of it.
#include "ctl/top.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
            "WORKER  STATE  ROWS/S  REQUESTS/S  ROWS/BATCH  ERRORS  ATTACHMENTS  PROBLEM\n"
            "w0      live   32000   4000        32          64      3            -\n");
}

TEST(TopTest, ADrainedWorkerServesNothingAnyMore) {
  v1::Worker worker = WorkerMessage("w0");
  worker.set_state(v1::WORKER_STATE_DRAINED);

  const TopRow row = RowOf(worker, Sample(10, 32'000), Sample(12, 96'000));

  EXPECT_EQ(row.state, "drained");
  EXPECT_EQ(row.rows_per_second, 0) << "what it did before";
  EXPECT_EQ(row.rows_per_batch, 0);
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
