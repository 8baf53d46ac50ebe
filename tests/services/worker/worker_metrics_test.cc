#include "services/worker/worker_metrics.h"

#include <future>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "tests/services/system/count_series.h"
#include "tests/services/worker_fixture.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void ExpectLines(const std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
}

WorkerFacts SomeFacts() {
  WorkerFacts facts;
  facts.health.not_ready = "wait";
  facts.heartbeat.progress = 12;
  facts.heartbeat.batch_age = std::chrono::milliseconds(1500);
  facts.heartbeat.staging = {{.deployment = "a",
                              .epoch = Epoch{5},
                              .experts_done = 1,
                              .experts = 2,
                              .bytes_done = 100,
                              .bytes = 300},
                             {.deployment = "b",
                              .epoch = Epoch{1},
                              .experts_done = 1,
                              .experts = 1,
                              .bytes_done = 50,
                              .bytes = 50}};
  facts.resident = {{.deployment = "a", .epoch = Epoch{3}, .hash = {}, .committed = true},
                    {.deployment = "a", .epoch = Epoch{4}, .hash = {}, .committed = true},
                    {.deployment = "b", .epoch = Epoch{1}, .hash = {}, .committed = false}};
  facts.weight_bytes = 1000;
  facts.weight_bytes_max = 4000;
  facts.gateway = {.sessions = 2, .memory_bytes = 30, .memory_bytes_max = 90};
  facts.view.emplace();
  facts.view->transport.frames_in = 7;
  facts.view->transport.frames_out = 6;
  facts.view->transport.drops[static_cast<std::size_t>(FrameDrop::kCrc)] = 3;
  facts.view->transport.late_wakes = 1;
  facts.view->transport.links_open = 2;
  facts.view->transport.ring_bytes = 4096;
  facts.view->experts = {.requests = 5,
                         .rows = 80,
                         .batches = 4,
                         .refused = 1,
                         .duplicates = 9,
                         .nan_rows = 8,
                         .attachments = 2};
  return facts;
}

TEST(WorkerMetricsTest, WritesWhatWasCollected) {
  WorkerFacts facts = SomeFacts();

  const std::string text = WorkerMetrics(facts);

  ExpectLines(text, {"moe_live 1",
                     "moe_ready 0",
                     "moe_data_thread_turns_total 12",
                     "moe_batch_age_seconds 1.5",
                     "moe_staging_bytes 350",
                     "moe_staging_done_bytes 150",
                     "moe_epochs{state=\"staged\"} 1",
                     "moe_epochs{state=\"committed\"} 2",
                     "moe_plan_epoch{deployment=\"a\"} 4",
                     "moe_weight_bytes 1000",
                     "moe_weight_max_bytes 4000",
                     "moe_gateway_sessions_open 2",
                     "moe_gateway_memory_bytes 30",
                     "moe_gateway_memory_max_bytes 90",
                     "moe_data_thread_answered 1",
                     "moe_frames_total{direction=\"in\"} 7",
                     "moe_frames_total{direction=\"out\"} 6",
                     "moe_frames_dropped_total{reason=\"crc\"} 3",
                     "moe_frames_dropped_total{reason=\"magic\"} 0",
                     "moe_late_wakes_total 1",
                     "moe_links_open 2",
                     "moe_ring_bytes 4096",
                     "moe_attachments_open 2",
                     "moe_requests_total{answer=\"result\"} 5",
                     "moe_requests_total{answer=\"error\"} 1",
                     "moe_duplicate_requests_total 9",
                     "moe_rows_total 80",
                     "moe_nan_rows_total 8",
                     "moe_batches_total 4"});
  EXPECT_THAT(text, Not(HasSubstr("reason=\"none\"")));
  EXPECT_THAT(text, Not(HasSubstr("plan_epoch{deployment=\"b\"}"))) << "it is staged only";

  // The bound that docs/OPERATIONS.md states.
  EXPECT_EQ(testing::CountSeries(text), 36U + 1);

  facts.weight_bytes_max = 0;
  ExpectLines(WorkerMetrics(facts), {"moe_weight_max_bytes +Inf"});
}

class WorkerScrapeTest : public testing::WorkerFixture {};

TEST_F(WorkerScrapeTest, SeesWhatTheWorkerHolds) {
  EXPECT_EQ(CollectWorkerFacts({}, 0, *server_, experts_.get()).weight_bytes, 0);
  Commit(1);

  const WorkerFacts facts = CollectWorkerFacts({}, 0, *server_, experts_.get());

  EXPECT_GT(facts.weight_bytes, 0);
  ASSERT_EQ(facts.resident.size(), 1U);
  EXPECT_TRUE(facts.resident[0].committed);
  EXPECT_TRUE(facts.view.has_value());
  EXPECT_GT(facts.gateway.memory_bytes_max, 0U);

  experts_->Drop("demo", Epoch{1});
  const TimePoint end = clock_.Now() + std::chrono::seconds(20);
  while (experts_->WeightBytes() != 0 && clock_.Now() < end) {
  }
  EXPECT_EQ(experts_->WeightBytes(), 0);
}

// It shows what it can, and says that the rest is missing.
TEST_F(WorkerScrapeTest, DoesNotHangWithTheDataThread) {
  std::promise<void> entered;
  std::promise<void> gate;
  experts_->Retire("demo", Epoch{99}, [&] {
    entered.set_value();
    gate.get_future().wait();
  });
  entered.get_future().wait();

  const TimePoint before = clock_.Now();
  const std::string text = WorkerMetrics(CollectWorkerFacts({}, 0, *server_, experts_.get()));
  EXPECT_LT(clock_.Now() - before, kScrapeWait + std::chrono::seconds(5));
  gate.set_value();

  ExpectLines(text, {"moe_data_thread_answered 0", "moe_live 1"});
  EXPECT_THAT(text, Not(HasSubstr("moe_frames_total")));
}

}  // namespace
}  // namespace switchyard
