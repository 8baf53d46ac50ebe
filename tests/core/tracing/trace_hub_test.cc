#include "core/tracing/trace_hub.h"

#include <map>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TraceRecord RecordOf(std::uint64_t step) {
  TraceRecord record;
  record.key.step = StepId{step};
  return record;
}

TEST(TraceHubTest, TakesFromAllRingsInTurn) {
  TraceHub hub;
  const auto flood = hub.MakeTracer();
  const auto calm = hub.MakeTracer();
  for (int i = 0; i < 100; ++i) flood->Push(RecordOf(1));
  for (int i = 0; i < 5; ++i) calm->Push(RecordOf(2));

  std::vector<TraceRecord> records;
  hub.Take(12, &records);

  std::map<std::uint64_t, int> from;
  for (const TraceRecord& record : records) ++from[record.key.step.value];
  EXPECT_EQ(records.size(), 12U);
  EXPECT_EQ(from[2], 5) << "a flood holds up nobody";
}

TEST(TraceHubTest, ReadsWhatATracerLeavesAndForgetsIt) {
  TraceHub hub;
  auto tracer = hub.MakeTracer();
  for (std::size_t i = 0; i < TraceRing::kRecords + 3; ++i) tracer->Push(RecordOf(i));
  tracer.reset();

  std::vector<TraceRecord> records;
  for (int i = 0; i < 3; ++i) hub.Take(10'000, &records);

  EXPECT_EQ(records.size(), TraceRing::kRecords);
  EXPECT_EQ(hub.dropped(), 3U) << "counted also when the ring is gone";
}

TEST(TraceHubTest, WithoutTracersThereIsNothing) {
  TraceHub hub;
  std::vector<TraceRecord> records;
  hub.Take(10, &records);
  EXPECT_TRUE(records.empty());
  EXPECT_EQ(hub.dropped(), 0U);
}

}  // namespace
}  // namespace switchyard
