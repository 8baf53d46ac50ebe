#include "core/tracing/trace_ring.h"

#include <thread>

#include "gtest/gtest.h"

#include "core/tracing/step_tracer.h"

namespace switchyard {
namespace {

TraceRecord RecordOf(std::uint64_t step) {
  TraceRecord record;
  record.key.step = StepId{step};
  record.rows = static_cast<std::uint32_t>(step);
  return record;
}

TEST(TraceRingTest, GivesRecordsInTheirOrder) {
  TraceRing ring;
  TraceRecord record;
  EXPECT_FALSE(ring.Pop(&record));
  // More than once around.
  for (std::uint64_t i = 0; i < 3 * TraceRing::kRecords; ++i) {
    EXPECT_TRUE(ring.Push(RecordOf(i)));
    EXPECT_FALSE(ring.empty());
    ASSERT_TRUE(ring.Pop(&record));
    EXPECT_EQ(record.key.step.value, i);
  }
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.dropped(), 0U);
}

TEST(TraceRingTest, CountsWhatFindsItFull) {
  TraceRing ring;
  for (std::uint64_t i = 0; i < TraceRing::kRecords; ++i) ASSERT_TRUE(ring.Push(RecordOf(i)));

  EXPECT_FALSE(ring.Push(RecordOf(9)));
  EXPECT_FALSE(ring.Push(RecordOf(9)));

  EXPECT_EQ(ring.dropped(), 2U);
  TraceRecord record;
  ASSERT_TRUE(ring.Pop(&record));
  EXPECT_EQ(record.key.step.value, 0U) << "the oldest stay: their step's other parts are there";
  EXPECT_TRUE(ring.Push(RecordOf(9)));
}

TEST(TraceRingTest, LosesAndMixesNothingBetweenTwoThreads) {
  constexpr std::uint64_t kAll = 200'000;
  TraceRing ring;
  std::thread producer([&ring] {
    for (std::uint64_t i = 0; i < kAll;) i += ring.Push(RecordOf(i)) ? 1 : 0;
  });
  TraceRecord record;
  for (std::uint64_t i = 0; i < kAll;) {
    if (!ring.Pop(&record)) continue;
    ASSERT_EQ(record.key.step.value, i);
    ASSERT_EQ(record.rows, i);
    ++i;
  }
  producer.join();
  EXPECT_TRUE(ring.empty());
}

TEST(TraceRecordTest, CutsLongNames) {
  TraceRecord record;
  record.SetWorker(std::string(100, 'w'));
  EXPECT_EQ(std::string(record.worker.data()), std::string(TraceRecord::kWorkerBytes - 1, 'w'));
  record.SetWorker("w3");
  EXPECT_EQ(std::string(record.worker.data()), "w3");
}

TEST(StepTracerTest, TracesNothingByDefaultAndWithoutARing) {
  StepTracer tracer;
  EXPECT_FALSE(tracer.Samples({.session = {1, 2}, .source = 3, .step = StepId{4}}));
  tracer.SetRatio(1);
  EXPECT_FALSE(tracer.Samples({.session = {1, 2}, .source = 3, .step = StepId{4}}));
  tracer.Push(RecordOf(1));
}

TEST(StepTracerTest, FollowsTheRatio) {
  const auto ring = std::make_shared<TraceRing>();
  StepTracer tracer(ring);
  const StepKey key{.session = {1, 2}, .source = 3, .step = StepId{4}};
  EXPECT_FALSE(tracer.Samples(key));
  tracer.SetRatio(1);
  EXPECT_TRUE(tracer.Samples(key));
  tracer.SetRatio(0);
  EXPECT_FALSE(tracer.Samples(key));
}

}  // namespace
}  // namespace switchyard
