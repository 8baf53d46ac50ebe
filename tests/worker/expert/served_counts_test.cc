#include "worker/expert/served_counts.h"

#include <algorithm>

#include "gtest/gtest.h"

#include "tests/testing/allocation_counter.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using testing::AllocationsOfThisThread;
using testing::FakeDevice;
using testing::LayerOf;
using testing::MakeChunk;
using testing::MakePlan;
using testing::MakeStaged;
using testing::MakeTestStep;
using testing::TestLayer;
using testing::TestStep;

TEST(ServedCountsTest, CountsEachPairForItsExpertWithoutAllocating) {
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    FakeDevice device;
    const StagedEpoch staged = MakeStaged(0, MakePlan(1, 2), &device);
    const LayerRuntime& runtime = *staged.runtime->FindLayer(LayerId{1});
    SeededRng rng(1);
    const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{1});
    const TestStep step = MakeTestStep(rng, layer, 9, mode);
    const auto chunk =
        MakeChunk(layer, step, WorkerOrdinal{0}, 0, step.plan.workers[0].rows.size());
    ServedCounts counts(*staged.runtime);
    const std::uint64_t before = AllocationsOfThisThread();

    counts.Add(runtime, chunk->view, 50, 48);
    counts.Add(runtime, chunk->view, 50, 48);
    counts.AddNanRows(3);

    EXPECT_EQ(AllocationsOfThisThread() - before, 0U);
    const AttachmentCounters snapshot = counts.Snapshot();
    EXPECT_EQ(snapshot.frames, 2U);
    EXPECT_EQ(snapshot.rows, 2 * chunk->planned.size());
    EXPECT_EQ(snapshot.request_payload_bytes, 50 * snapshot.rows);
    EXPECT_EQ(snapshot.reply_payload_bytes, 48 * snapshot.rows);
    EXPECT_EQ(snapshot.nan_rows, 3U);
    std::uint64_t hits = 0;
    for (const AttachmentCounters::Hit& hit : snapshot.hits) {
      EXPECT_EQ(hit.layer, LayerId{1});
      const auto pairs =
          std::count(step.routing.ids.begin(), step.routing.ids.end(), hit.expert.value);
      EXPECT_EQ(hit.rows, 2 * static_cast<std::uint64_t>(pairs));
      hits += hit.rows;
    }
    const auto here =
        std::count(step.plan.worker_of_pair.begin(), step.plan.worker_of_pair.end(), 0);
    EXPECT_EQ(hits, 2 * static_cast<std::uint64_t>(here));
    std::uint64_t load = 0;
    ASSERT_NE(runtime.load, nullptr);
    for (std::size_t i = 0; i < runtime.load->slots(); ++i) load += runtime.load->Rows(i);
    EXPECT_EQ(load, hits);
  }
}

TEST(ServedCountsTest, FitsOnlyEpochsOfTheSameLayersAndSizes) {
  EpochRuntime runtime;
  runtime.plan.shape = {.hidden = 8, .intermediate = 8, .experts = 4, .top_k = 2};
  runtime.layers.resize(2);
  runtime.layers[1].layer = LayerId{3};
  const ServedCounts counts(runtime);
  EXPECT_TRUE(counts.Fits(runtime));

  EpochRuntime fewer = runtime;
  fewer.layers.pop_back();
  EXPECT_FALSE(counts.Fits(fewer));
  EpochRuntime renumbered = runtime;
  renumbered.layers[1].layer = LayerId{2};
  EXPECT_FALSE(counts.Fits(renumbered));
  EpochRuntime wider = runtime;
  wider.plan.shape.experts = 5;
  EXPECT_FALSE(counts.Fits(wider));
}

}  // namespace
}  // namespace switchyard
