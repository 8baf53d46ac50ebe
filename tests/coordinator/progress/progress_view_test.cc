#include "coordinator/progress/progress_view.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{seconds(50)};
constexpr std::int64_t kMiB = 1 << 20;

// 3 of 4 experts of 100 MiB, one a second.
StagingMeters Loading() {
  StagingMeters meters;
  for (int done = 0; done <= 3; ++done) {
    meters.Update({{"demo", Epoch{5}, done, 4, done * 100 * kMiB, 400 * kMiB}},
                  kStart + seconds(done));
  }
  return meters;
}

TEST(ProgressViewTest, SaysHowFarAWorkerIsAndWhatIsLeft) {
  const StagingMeters meters = Loading();

  const StagingView view = ViewOf("w1", meters.all()[0], kStart + seconds(3));

  EXPECT_EQ(view.worker, "w1");
  EXPECT_EQ(view.step, StagingStep::kLoading);
  EXPECT_EQ(view.pace.bytes_per_second, 100 * kMiB);
  EXPECT_EQ(view.pace.left, seconds(1));
  EXPECT_EQ(TextOf(view), "3 of 4 experts, 300.0 of 400.0 MiB, 100.0 MiB/s, 1 s left");
}

TEST(ProgressViewTest, SaysNoTimeForWhatDoesNotMove) {
  const StagingMeters meters = Loading();

  const StagingView view = ViewOf("w1", meters.all()[0], kStart + seconds(20));

  EXPECT_EQ(view.pace.left, std::nullopt);
  EXPECT_EQ(TextOf(view), "3 of 4 experts, 300.0 of 400.0 MiB, nothing for 17 s");
}

TEST(ProgressViewTest, SaysWhatAWorkerWaitsFor) {
  StagingView view;
  EXPECT_EQ(TextOf(view), "not asked");
  view.waits_for = "has to free epoch 3";
  EXPECT_EQ(TextOf(view), "has to free epoch 3");
  view.step = StagingStep::kAsked;
  view.waits_for = "it loads epoch 7 of other first";
  EXPECT_EQ(TextOf(view), "not begun; it loads epoch 7 of other first");
  view.waits_for = "";
  EXPECT_EQ(TextOf(view), "not begun");
  view.step = StagingStep::kLoading;
  EXPECT_EQ(TextOf(view), "nothing to load");
  view.step = StagingStep::kPrepared;
  EXPECT_EQ(TextOf(view), "prepared");
  view.step = StagingStep::kCommitted;
  EXPECT_EQ(TextOf(view), "committed");
}

TEST(ProgressViewTest, AWorkerWithEverythingIsPrepared) {
  StagingMeters meters;
  meters.Update({{"demo", Epoch{5}, 4, 4, 400, 400}}, kStart);

  EXPECT_EQ(ViewOf("w1", meters.all()[0], kStart).step, StagingStep::kPrepared);
}

TEST(ProgressViewTest, SaysHowFarACheckpointIsRead) {
  ReadingView view;
  view.checkpoint = "/models/b";
  EXPECT_EQ(TextOf(view), "reading /models/b (not begun)");
  view.bytes = 400 * kMiB;
  view.bytes_done = 100 * kMiB;
  view.pace = {.bytes_per_second = 100 * kMiB, .left = seconds(3)};
  EXPECT_EQ(TextOf(view), "reading /models/b (100.0 of 400.0 MiB, 100.0 MiB/s, 3 s left)");
  view.bytes_done = view.bytes;
  EXPECT_EQ(TextOf(view), "reading /models/b (400.0 of 400.0 MiB)");
}

}  // namespace
}  // namespace switchyard
