// What the source writes down about traced steps.
#include "worker/source/p2p/step_trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"

#include "core/tracing/trace_record.h"
#include "core/tracing/trace_ring.h"
#include "tests/testing/allocation_counter.h"
#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::AllocationsOfThisThread;
using testing::kHidden;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::TestBatch;

constexpr DispatchMode kNm = DispatchMode::kNormal;

class StepTraceTest : public RunnerFixture {
 protected:
  // The time 0 stands for "never".
  StepTraceTest() {
    clock_.Advance(std::chrono::seconds(1));
    tracer_ = std::make_shared<StepTracer>(ring_);
  }
  std::vector<TraceRecord> TakeAll() {
    std::vector<TraceRecord> records;
    TraceRecord record;
    while (ring_->Pop(&record)) records.push_back(record);
    return records;
  }
  void Tick() { clock_.Advance(std::chrono::milliseconds(1)); }
  void RunOne(const Plan& plan, const TestBatch& batch) {
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    Tick();
    AnswerAll(plan);
    Poll();
    SY_ASSERT_OK(Take(ticket));
  }

  std::shared_ptr<TraceRing> ring_ = std::make_shared<TraceRing>();
};

TEST_F(StepTraceTest, AStepAndItsChunksForEachWorker) {
  const Plan plan = MakeTestPlan(3, {"a", "b", "c"}, kNm);
  OpenReady(plan);
  tracer_->SetRatio(1);
  const TestBatch batch(17, 3);
  const TimePoint submitted = clock_.Now();
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  EXPECT_TRUE(ring_->empty()) << "it has not ended";
  Tick();
  const TimePoint answered = clock_.Now();
  AnswerAll(plan);
  Poll();
  SY_ASSERT_OK(Take(ticket));

  const std::vector<TraceRecord> records = TakeAll();

  ASSERT_GE(records.size(), 4U);
  const TraceRecord& step = records[0];
  EXPECT_EQ(step.part, TracedPart::kStep);
  EXPECT_EQ(step.key.session, runner_->grant().session);
  EXPECT_EQ(step.key.source, static_cast<std::uint32_t>(incarnation_.low));
  EXPECT_EQ(step.key.step.value, 1U);
  EXPECT_EQ(step.epoch, Epoch{3});
  EXPECT_EQ(step.rows, 17U);
  EXPECT_EQ(step.mode, kNm);
  EXPECT_EQ(step.code, absl::StatusCode::kOk);
  EXPECT_EQ(step.times[0], submitted);
  EXPECT_EQ(step.times[2], answered);
  EXPECT_TRUE(std::is_sorted(step.times.begin(), step.times.end()));
  std::map<std::string, std::vector<TraceRecord>> chunks;
  for (std::size_t i = 1; i < records.size(); ++i) {
    chunks[records[i].worker.data()].push_back(records[i]);
  }
  ASSERT_EQ(chunks.size(), 3U);
  for (const auto& [worker, of] : chunks) {
    std::uint32_t rows = 0;
    for (std::size_t c = 0; c < of.size(); ++c) {
      const TraceRecord& chunk = of[c];
      EXPECT_EQ(chunk.part, TracedPart::kChunk);
      EXPECT_EQ(chunk.key, step.key);
      EXPECT_EQ(chunk.chunk, c) << "as the worker counts it";
      EXPECT_GE(chunk.times[0], submitted);
      EXPECT_EQ(chunk.times[2], answered);
      EXPECT_EQ(chunk.reply_bytes, chunk.rows * kHidden * sizeof(Bf16));
      EXPECT_GE(chunk.request_bytes, chunk.rows * kHidden);
      rows += chunk.rows;
    }
    EXPECT_GT(rows, 0U);
    EXPECT_LE(rows, 17U);
  }
}

TEST_F(StepTraceTest, OffWritesNothing) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kNm);
  OpenReady(plan);
  RunOne(plan, TestBatch(5, 3));
  EXPECT_TRUE(ring_->empty());
}

TEST_F(StepTraceTest, TracesTheStepsThatItsWorkersWouldTrace) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kNm);
  OpenReady(plan);
  tracer_->SetRatio(0.2);
  std::set<std::uint64_t> expected;
  constexpr std::uint64_t kSteps = 50;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    // As a worker has it: the session of its attachment, and a frame's header.
    const StepKey key{runner_->grant().session, static_cast<std::uint32_t>(incarnation_.low),
                      StepId{step}};
    if (tracer_->Samples(key)) expected.insert(step);
    RunOne(plan, TestBatch(5, step));
  }
  std::set<std::uint64_t> traced;
  for (const TraceRecord& record : TakeAll()) traced.insert(record.key.step.value);
  EXPECT_EQ(traced, expected);
  EXPECT_FALSE(expected.empty());
  EXPECT_LT(expected.size(), kSteps / 2);
}

TEST_F(StepTraceTest, AStepThatFailsSaysWhyAndAtWhichWorker) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kNm);
  OpenReady(plan);
  tracer_->SetRatio(1);
  const TestBatch batch(2, 3);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  ASSERT_TRUE(AnswerOne(plan, 0));
  clock_.Advance(std::chrono::minutes(2));
  Poll();
  EXPECT_FALSE(Take(ticket).ok());

  std::map<std::string, TraceRecord> records;
  for (const TraceRecord& record : TakeAll()) records[record.worker.data()] = record;

  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[""].code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(records[""].reason, Reason::kStepDeadline);
  EXPECT_EQ(records["a"].code, absl::StatusCode::kOk) << "it answered";
  EXPECT_EQ(records["b"].reason, Reason::kStepDeadline);
  EXPECT_EQ(records["b"].reply_bytes, 0U);
  EXPECT_EQ(records["b"].times[2], records[""].times[3]) << "it was waited for until the end";
}

TEST_F(StepTraceTest, AllocatesNothingOnceThePoolHasGrown) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kNm);
  OpenReady(plan);
  const TestBatch batch(17, 3);
  // What the fixture's links and answers allocate is the same with tracing.
  const auto allocations_of_a_step = [&] {
    const std::uint64_t before = AllocationsOfThisThread();
    RunOne(plan, batch);
    return AllocationsOfThisThread() - before;
  };
  for (int i = 0; i < 3; ++i) allocations_of_a_step();
  const std::uint64_t off = allocations_of_a_step();
  tracer_->SetRatio(1);
  allocations_of_a_step();  // the list of chunks
  EXPECT_EQ(allocations_of_a_step(), off);
  EXPECT_FALSE(ring_->empty());
}

}  // namespace
}  // namespace switchyard
