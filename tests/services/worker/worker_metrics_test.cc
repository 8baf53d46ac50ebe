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

std::string TextOf(const WorkerFacts& facts) { return WorkerMetrics(facts).Take(); }

// Values for every set of labels that there can be.
struct FullCounts {
  FullCounts() {
    for (const WorkClass of : {WorkClass::kDecode, WorkClass::kPrefill}) {
      for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
        BatchTimes& batch = times.Of(of, mode);
        batch.dispatch.Observe(std::chrono::microseconds(30));
        batch.compute.Observe(std::chrono::microseconds(300));
        batch.combine.Observe(std::chrono::microseconds(3));
        batch.rows.Observe(std::uint64_t{12});
        gateway.StepOf(of, mode).Observe(std::chrono::milliseconds(2));
        for (const DispatchDtype dtype : {DispatchDtype::kBf16, DispatchDtype::kFp8,
                                          DispatchDtype::kInt8, DispatchDtype::kNvfp4}) {
          for (const LinkPath path :
               {LinkPath::kMapped, LinkPath::kMessages, LinkPath::kInProcess}) {
            times.Request(of, mode, dtype, path).Observe(std::chrono::microseconds(400));
          }
        }
      }
    }
    loads.loaded.Observe(std::chrono::seconds(70));
    loads.failed.Observe(std::chrono::seconds(7));
    loads.bytes = 77;
    gateway.results = 20;
    gateway.tokens = 60;
    gateway.errors = 2;
    groups.steps = 30;
    groups.failed = 3;
    groups.step.Observe(std::chrono::microseconds(900));
    groups.exchange.rows = 50;
    groups.exchange.peer_wait.Observe(std::chrono::microseconds(90));
  }
  void Show(WorkerFacts* facts) const {
    facts->times = &times;
    facts->loads = &loads;
    facts->gateway_counts = &gateway;
    facts->groups = &groups;
    facts->groups_open = 4;
  }

  ExpertTimes times;
  LoadTimes loads;
  GatewayCounts gateway;
  GroupCounts groups;
};

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
  facts.view->direct = {.chunks = 11, .rows = 13, .nan_rows = 1, .failed = 6};
  return facts;
}

TEST(WorkerMetricsTest, WritesWhatWasCollected) {
  WorkerFacts facts = SomeFacts();
  const FullCounts counts;
  counts.Show(&facts);

  const std::string text = TextOf(facts);

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
                     "moe_rows_total{via=\"attachment\"} 80",
                     "moe_rows_total{via=\"gateway\"} 13",
                     "moe_rows_total{via=\"group\"} 50",
                     "moe_direct_chunks_total{answer=\"result\"} 11",
                     "moe_direct_chunks_total{answer=\"error\"} 6",
                     "moe_nan_rows_total 9",
                     "moe_batches_total 4",
                     "moe_gateway_steps_total{answer=\"result\"} 20",
                     "moe_gateway_steps_total{answer=\"error\"} 2",
                     "moe_gateway_tokens_total 60",
                     "moe_groups_open 4",
                     "moe_group_steps_total{result=\"ok\"} 30",
                     "moe_group_steps_total{result=\"error\"} 3",
                     "moe_group_step_duration_seconds_bucket{le=\"0.001\"} 1",
                     "moe_peer_wait_duration_seconds_bucket{le=\"0.0001\"} 1",
                     "moe_weight_load_bytes_total 77",
                     "moe_weight_load_duration_seconds_sum{result=\"ok\"} 70",
                     "moe_weight_load_duration_seconds_sum{result=\"error\"} 7"});
  ExpectLines(text, {"moe_dispatch_duration_seconds_bucket{phase=\"decode\",mode=\"normal\","
                     "le=\"5e-05\"} 1",
                     "moe_expert_compute_duration_seconds_bucket{phase=\"prefill\","
                     "mode=\"low_latency\",le=\"0.0005\"} 1",
                     "moe_combine_duration_seconds_bucket{phase=\"decode\",mode=\"low_latency\","
                     "le=\"1e-05\"} 1",
                     "moe_batch_rows_sum{phase=\"prefill\",mode=\"normal\"} 12",
                     "moe_gateway_step_duration_seconds_bucket{phase=\"decode\",mode=\"normal\","
                     "le=\"0.002\"} 1",
                     "moe_request_duration_seconds_bucket{phase=\"decode\",mode=\"low_latency\","
                     "dtype=\"int8\",transport=\"messages\",le=\"0.0005\"} 1"});
  EXPECT_THAT(text, Not(HasSubstr("reason=\"none\"")));
  EXPECT_THAT(text, Not(HasSubstr("plan_epoch{deployment=\"b\"}"))) << "it is staged only";

  facts.weight_bytes_max = 0;
  ExpectLines(TextOf(facts), {"moe_weight_max_bytes +Inf"});
}

TEST(WorkerMetricsTest, SaysWhatBecameOfTraces) {
  WorkerFacts facts = SomeFacts();
  facts.traces = {.exported = 40, .failed = 8, .dropped = 3};
  ExpectLines(TextOf(facts),
              {"moe_trace_spans_total{result=\"exported\"} 40",
               "moe_trace_spans_total{result=\"failed\"} 8", "moe_trace_records_dropped_total 3"});
}

// The bounds that docs/METRICS.md states.
TEST(WorkerMetricsTest, SeriesAreBoundedWhateverTheModel) {
  WorkerFacts facts = SomeFacts();
  const ExpertTimes times;
  const GroupCounts groups;
  const LoadTimes loads;
  const GatewayCounts gateway;
  facts.times = &times;
  facts.groups = &groups;
  facts.loads = &loads;
  facts.gateway_counts = &gateway;
  EXPECT_EQ(testing::CountSeries(TextOf(facts)), 50U + 1) << "one deployment";

  const FullCounts full;
  full.Show(&facts);
  const TimePoint before = SteadyClock().Now();
  const std::string text = TextOf(facts);
  EXPECT_LT(SteadyClock().Now() - before, std::chrono::seconds(1));
  EXPECT_EQ(testing::CountSeries(text), 1634U + 1);
}

TEST(WorkerMetricsTest, RowsOfGroupsAreLeftOutWhereADeviceDoesNotTellThem) {
  WorkerFacts facts = SomeFacts();
  FullCounts counts;
  counts.groups.has_rows = false;
  counts.Show(&facts);
  EXPECT_THAT(TextOf(facts), Not(HasSubstr("via=\"group\"")));
}

class WorkerScrapeTest : public testing::WorkerFixture {};

TEST_F(WorkerScrapeTest, SeesWhatTheWorkerHolds) {
  EXPECT_EQ(CollectWorkerFacts({}, 0, *server_, experts_.get(), nullptr).weight_bytes, 0);
  Commit(1);

  const WorkerFacts facts = CollectWorkerFacts({}, 0, *server_, experts_.get(), nullptr);

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
  const std::string text = TextOf(CollectWorkerFacts({}, 0, *server_, experts_.get(), nullptr));
  EXPECT_LT(clock_.Now() - before, kScrapeWait + std::chrono::seconds(5));
  gate.set_value();

  ExpectLines(text, {"moe_data_thread_answered 0", "moe_live 1"});
  EXPECT_THAT(text, Not(HasSubstr("moe_frames_total")));
}

}  // namespace
}  // namespace switchyard
