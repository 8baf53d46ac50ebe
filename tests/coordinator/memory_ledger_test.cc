#include "coordinator/memory_ledger.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// `counts[w]` experts of one layer on worker w<w>.
Plan PlanWithExperts(const std::vector<int>& counts) {
  Plan plan;
  plan.layers.resize(1);
  for (std::size_t w = 0; w < counts.size(); ++w) {
    plan.workers.emplace_back().id = "w" + std::to_string(w);
    for (int i = 0; i < counts[w]; ++i) {
      plan.layers[0].experts.push_back(
          {ExpertId{i}, WorkerOrdinal{static_cast<int>(w)}, SlotId{i}});
    }
  }
  return plan;
}

TEST(PeakBytesTest, CountsTheLargestOfThePlansForEachWorker) {
  const Plan serving = PlanWithExperts({3, 1});
  const Plan changing = PlanWithExperts({2, 2, 5});

  EXPECT_EQ(PeakBytes(100, {&serving, &changing}),
            (BytesByWorker{{"w0", 300}, {"w1", 200}, {"w2", 500}}));
  EXPECT_EQ(PeakBytes(100, {nullptr, &serving}), (BytesByWorker{{"w0", 300}, {"w1", 100}}));
  EXPECT_EQ(PeakBytes(100, {nullptr, nullptr}), BytesByWorker{});
}

TEST(MemoryLedgerTest, AddsWhatOtherDeploymentsWerePromised) {
  MemoryLedger ledger;
  ledger.Set("a", {{"w0", 10}, {"w1", 20}});
  ledger.Set("b", {{"w0", 5}});
  ledger.Set("c", {{"w0", 1}});

  EXPECT_EQ(ledger.UsedByOthers("a", "w0"), 6);
  EXPECT_EQ(ledger.UsedByOthers("a", "w1"), 0);
  EXPECT_EQ(ledger.UsedByOthers("b", "w1"), 20);

  ledger.Set("a", {});
  EXPECT_EQ(ledger.UsedByOthers("b", "w0"), 1);
}

}  // namespace
}  // namespace switchyard
