#include "coordinator/checkpoints/model_reads.h"

#include <future>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

absl::StatusOr<ModelFacts> Layout(const std::string&) { return testing::MakeLayout(); }

// A load that reads piece by piece until `go`.
class ModelReadsTest : public ::testing::Test {
 protected:
  ModelLoader load_ = [this](const std::string& checkpoint,
                             const ManifestProgress& progress) -> absl::StatusOr<ModelFacts> {
    begun_.set_value(checkpoint);
    while (go_.wait_for(milliseconds(1)) != std::future_status::ready) {
      if (!progress(1, 2)) return absl::CancelledError("told to stop");
    }
    progress(2, 2);
    return testing::MakeFacts();
  };
  ModelReads::Done Into(std::promise<absl::Status>& outcome) {
    return
        [&outcome](const absl::StatusOr<ModelFacts>& facts) { outcome.set_value(facts.status()); };
  }
  static ModelReads::Progress Ignored() {
    return [](std::int64_t, std::int64_t) {};
  }

  std::promise<void> release_;
  std::shared_future<void> go_ = release_.get_future().share();
  std::promise<std::string> begun_;
};

TEST_F(ModelReadsTest, ACheckWaitsForNoLoad) {
  std::promise<absl::Status> loaded;
  std::promise<absl::Status> checked;
  ModelReads reads(&Layout, load_);
  reads.Load(RequestId{1}, "/m", Ignored(), Into(loaded));
  begun_.get_future().wait();

  reads.Check("/n", Into(checked));

  SY_EXPECT_OK(checked.get_future().get());
  release_.set_value();
  SY_EXPECT_OK(loaded.get_future().get());
}

TEST_F(ModelReadsTest, SaysHowFarItIs) {
  std::promise<absl::Status> loaded;
  std::vector<std::int64_t> seen;
  ModelReads reads(&Layout, load_);
  release_.set_value();
  reads.Load(
      RequestId{1}, "/m",
      [&seen](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, 2);
        seen.push_back(done);
      },
      Into(loaded));

  SY_EXPECT_OK(loaded.get_future().get());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), 2);
}

TEST_F(ModelReadsTest, CancelsOneThatRunsAndOneThatWaits) {
  std::promise<absl::Status> first;
  std::promise<absl::Status> second;
  ModelReads reads(&Layout, load_);
  reads.Load(RequestId{1}, "/m", Ignored(), Into(first));
  reads.Load(RequestId{2}, "/n", Ignored(), Into(second));
  EXPECT_EQ(begun_.get_future().get(), "/m");

  reads.Cancel(RequestId{2});
  reads.Cancel(RequestId{1});
  reads.Cancel(RequestId{7});

  EXPECT_TRUE(absl::IsCancelled(first.get_future().get()));
  EXPECT_TRUE(absl::IsCancelled(second.get_future().get())) << "it has not begun";
  reads.Forget(RequestId{1});
  reads.Cancel(RequestId{1});
}

TEST_F(ModelReadsTest, StopCancelsWhatRuns) {
  std::promise<absl::Status> loaded;
  ModelReads reads(&Layout, load_);
  reads.Load(RequestId{1}, "/m", Ignored(), Into(loaded));
  begun_.get_future().wait();

  EXPECT_TRUE(reads.Stop(seconds(30)));

  EXPECT_TRUE(absl::IsCancelled(loaded.get_future().get()));
}

}  // namespace
}  // namespace switchyard
