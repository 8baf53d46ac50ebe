#include "worker/expert/staging_thread.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "core/held_expert_bytes.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/epoch_testing.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::FailsWith;
using testing::FakeDevice;
using testing::MakePlan;
using testing::MakePrepare;
using testing::StagerOf;

// Stages and waits for the answer.
absl::Status StageAndWait(StagingThread& thread, const Prepare& prepare) {
  std::promise<absl::Status> done;
  auto answer = done.get_future();
  thread.Stage(prepare, [&done](absl::Status status) { done.set_value(std::move(status)); });
  if (answer.wait_for(30s) != std::future_status::ready) std::abort();
  return answer.get();
}

// A stager whose first opening of weights waits for the test.
class Gate {
 public:
  StagerOptions Guard(StagerOptions options) {
    options.open_weights = [this, open = options.open_weights](absl::string_view checkpoint,
                                                               WeightCheck check) {
      if (!reached_.exchange(true)) {
        at_gate_.set_value();
        if (opened_.get_future().wait_for(30s) != std::future_status::ready) std::abort();
      }
      return open(checkpoint, check);
    };
    return options;
  }
  bool AwaitArrival() { return at_gate_.get_future().wait_for(30s) == std::future_status::ready; }
  void Open() { opened_.set_value(); }

 private:
  std::atomic<bool> reached_{false};
  std::promise<void> at_gate_;
  std::promise<void> opened_;
};

TEST(StagingThreadTest, StagesThenGivesTheEpochOutOnceAndKeepsItKnown) {
  FakeDevice device;
  StagingThread thread(StagerOf(1, &device));

  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(1, 2))));

  const ResidentEpoch expected{
      .deployment = "demo", .epoch = Epoch{1}, .hash = HashOf(MakePlan(1, 2)), .committed = false};
  EXPECT_EQ(thread.Resident(), std::vector{expected});
  EXPECT_EQ(thread.Take("demo", Epoch{2}).runtime, nullptr);
  const StagedEpoch taken = thread.Take("demo", Epoch{1});
  ASSERT_NE(taken.runtime, nullptr);
  EXPECT_NE(taken.memory, nullptr);
  EXPECT_EQ(thread.Take("demo", Epoch{1}).runtime, nullptr);
  EXPECT_TRUE(thread.Resident()[0].committed);
}

TEST(StagingThreadTest, SharesExpertsWithWhatIsResident) {
  FakeDevice device;
  StagingThread thread(StagerOf(1, &device));
  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(1, 2))));
  const int packs = device.packs;

  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(2, 2))));

  EXPECT_EQ(device.packs, packs);
  EXPECT_EQ(thread.times().loaded.Counts().count(), 2U);
  EXPECT_EQ(thread.times().bytes.load(), static_cast<std::uint64_t>(thread.WeightBytes()))
      << "what is shared was loaded once";
}

TEST(StagingThreadTest, LeavesNothingOfAnEpochThatFailed) {
  FakeDevice device;
  StagingThread thread(StagerOf(1, &device));
  Prepare prepare = MakePrepare(MakePlan(1, 2));
  for (TensorHash& row : prepare.tensors) row.sha256.bytes[0] ^= 1;

  EXPECT_THAT(StageAndWait(thread, prepare),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));

  EXPECT_TRUE(thread.Resident().empty());
  EXPECT_EQ(thread.Take("demo", Epoch{1}).runtime, nullptr);
  EXPECT_EQ(thread.times().loaded.Counts().count(), 0U);
  EXPECT_EQ(thread.times().failed.Counts().count(), 1U);
}

// Calls `look` before each expert, on the thread that loads it.
class WatchedSource final : public WeightSource {
 public:
  WatchedSource(std::unique_ptr<WeightSource> source, std::function<void()> look)
      : source_(std::move(source)), look_(std::move(look)) {}
  absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) override {
    look_();
    return source_->Load(layer, expert);
  }
  [[nodiscard]] MoeShape shape() const override { return source_->shape(); }
  [[nodiscard]] QuantScheme SchemeOf(LayerId layer) const override {
    return source_->SchemeOf(layer);
  }
  [[nodiscard]] std::string describe() const override { return source_->describe(); }

 private:
  std::unique_ptr<WeightSource> source_;
  std::function<void()> look_;
};

StagingReport ReportOf(std::uint64_t epoch, std::int32_t done, std::int32_t experts) {
  const std::int64_t bytes = HeldExpertBytes(testing::TestModel().shape, QuantScheme::kNone);
  return {"demo", Epoch{epoch}, done, experts, done * bytes, experts * bytes};
}

TEST(StagingThreadTest, ReportsWhatItLoadsExpertByExpert) {
  FakeDevice device;
  StagingThread* watched = nullptr;
  std::vector<StagingReport> seen;
  StagerOptions options = StagerOf(1, &device);
  options.open_weights = [&, open = options.open_weights](
                             absl::string_view checkpoint,
                             WeightCheck check) -> absl::StatusOr<std::unique_ptr<WeightSource>> {
    auto source = open(checkpoint, check);
    if (!source.ok()) return source;
    return std::make_unique<WatchedSource>(*std::move(source), [&] {
      const auto reports = watched->Reports();
      ASSERT_EQ(reports.size(), 1U);
      seen.push_back(reports[0]);
    });
  };
  StagingThread thread(options);
  watched = &thread;
  EXPECT_TRUE(thread.Reports().empty());

  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(4, 2))));

  ASSERT_EQ(seen.size(), 6U);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], ReportOf(4, i, 6));
  // Until its commit, so that whoever waits for another worker sees that this one is done.
  EXPECT_EQ(thread.Reports(), std::vector{ReportOf(4, 6, 6)});
  const StagedEpoch taken = thread.Take("demo", Epoch{4});
  EXPECT_TRUE(thread.Reports().empty());
}

TEST(StagingThreadTest, ReportsOnlyWhatHasToBeLoaded) {
  FakeDevice device;
  StagingThread thread(StagerOf(0, &device));
  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(1, 2))));
  const StagedEpoch taken = thread.Take("demo", Epoch{1});

  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(2, 3))));

  EXPECT_EQ(thread.Reports(), std::vector{ReportOf(2, 2, 2)}) << "two of four are shared";
  thread.Drop("demo", Epoch{2});
  EXPECT_TRUE(thread.Reports().empty());
}

TEST(StagingThreadTest, ReportsWhatItBeginsBeforeTheCheckpointIsOpenAndNothingThatWasDropped) {
  FakeDevice device;
  Gate gate;
  StagingThread thread(gate.Guard(StagerOf(1, &device)));
  thread.Stage(MakePrepare(MakePlan(1, 2)), [](const absl::Status&) {});
  thread.Stage(MakePrepare(MakePlan(2, 2)), [](const absl::Status&) {});
  ASSERT_TRUE(gate.AwaitArrival());

  EXPECT_EQ(thread.Reports(), std::vector{ReportOf(1, 0, 6)}) << "the other one waits";

  thread.Drop("demo", Epoch{1});
  EXPECT_TRUE(thread.Reports().empty());
  gate.Open();
}

TEST(StagingThreadTest, DropFreesWhatIsStagedAndWhatWasTaken) {
  FakeDevice device;
  StagingThread thread(StagerOf(1, &device));
  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(1, 2))));
  StagedEpoch taken = thread.Take("demo", Epoch{1});
  const std::weak_ptr<const EpochRuntime> runtime = taken.runtime;

  thread.Drop("demo", Epoch{1});

  EXPECT_TRUE(thread.Resident().empty());
  EXPECT_FALSE(runtime.expired());  // It serves until its taker gives it back.
  thread.Free(std::move(taken));
  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(2, 2))));  // After what was to be freed.
  EXPECT_TRUE(runtime.expired());
}

TEST(StagingThreadTest, DropStopsWhatIsBeingStagedAndDoesNotTell) {
  FakeDevice device;
  Gate gate;
  StagingThread thread(gate.Guard(StagerOf(1, &device)));
  std::atomic<int> told{0};
  thread.Stage(MakePrepare(MakePlan(1, 2)), [&](const absl::Status&) { ++told; });
  thread.Stage(MakePrepare(MakePlan(2, 2)), [&](const absl::Status&) { ++told; });
  ASSERT_TRUE(gate.AwaitArrival());

  thread.Drop("demo", Epoch{1});
  thread.Drop("demo", Epoch{2});  // Still waiting in the queue.
  gate.Open();

  SY_ASSERT_OK(StageAndWait(thread, MakePrepare(MakePlan(3, 2))));
  EXPECT_EQ(told, 0);
  ASSERT_EQ(thread.Resident().size(), 1U);
  EXPECT_EQ(thread.Resident()[0].epoch, Epoch{3});
  EXPECT_EQ(device.packs, 6);  // Only those of epoch 3.
}

TEST(StagingThreadTest, StopEndsWhatIsBeingStaged) {
  FakeDevice device;
  Gate gate;
  StagingThread thread(gate.Guard(StagerOf(1, &device)));
  std::promise<absl::Status> done;
  auto answer = done.get_future();
  thread.Stage(MakePrepare(MakePlan(1, 2)),
               [&](absl::Status status) { done.set_value(std::move(status)); });
  ASSERT_TRUE(gate.AwaitArrival());
  std::thread opener([&] { gate.Open(); });

  thread.Stop();

  opener.join();
  if (answer.wait_for(0s) == std::future_status::ready) {
    const absl::Status status = answer.get();
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kCancelled) << status;
  }
  thread.Stop();
}

TEST(StagingThreadTest, RefusesMoreOrdersThanItsBound) {
  FakeDevice device;
  Gate gate;
  StagingThread thread(gate.Guard(StagerOf(1, &device)));
  std::mutex mutex;
  std::vector<absl::Status> answers;
  const auto note = [&](const absl::Status& status) {
    const std::lock_guard lock(mutex);
    answers.push_back(status);
  };
  thread.Stage(MakePrepare(MakePlan(1, 2)), note);
  ASSERT_TRUE(gate.AwaitArrival());

  for (std::uint64_t epoch = 2; epoch < 67; ++epoch) {
    thread.Stage(MakePrepare(MakePlan(epoch, 2)), note);
  }

  {
    const std::lock_guard lock(mutex);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_THAT(answers[0], FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  }
  for (std::uint64_t epoch = 1; epoch < 67; ++epoch) thread.Drop("demo", Epoch{epoch});
  gate.Open();
}

}  // namespace
}  // namespace switchyard
