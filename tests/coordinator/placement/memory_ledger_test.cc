#include "coordinator/placement/memory_ledger.h"

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

TEST(BytesOfBothTest, CountsAnExpertThatStaysOnce) {
  const Plan serving = PlanWithExperts({3, 1});      // w0: 0 1 2, w1: 0
  const Plan changing = PlanWithExperts({2, 2, 5});  // w0: 0 1, w1: 0 1, w2: 0 to 4

  EXPECT_EQ(BytesOfBoth({&serving, 100}, {&changing, 100}),
            (BytesByWorker{{"w0", 300}, {"w1", 200}, {"w2", 500}}));
  EXPECT_EQ(BytesOfBoth({&serving, 100}, {}), (BytesByWorker{{"w0", 300}, {"w1", 100}}));
  EXPECT_EQ(BytesOfBoth({}, {}), BytesByWorker{});
}

TEST(BytesOfBothTest, CountsWhatMovesTwice) {
  const Plan serving = PlanWithExperts({3});
  Plan changing = PlanWithExperts({2});
  changing.layers[0].experts[0].expert = ExpertId{7};  // 7 and 1: only 1 stays

  EXPECT_EQ(BytesOfBoth({&serving, 100}, {&changing, 100}), (BytesByWorker{{"w0", 400}}));
}

TEST(BytesOfBothTest, AnotherCheckpointSharesNothing) {
  const Plan serving = PlanWithExperts({3, 1});
  Plan changing = PlanWithExperts({3});
  changing.manifest = Sha256("other weights");

  EXPECT_EQ(BytesOfBoth({&serving, 100}, {&changing, 10}),
            (BytesByWorker{{"w0", 330}, {"w1", 100}}));
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
