#include "services/worker/worker_health.h"

#include <future>

#include "gmock/gmock.h"

#include "tests/services/worker_fixture.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::MakePlan;

class WorkerHealthTest : public testing::WorkerFixture {
 protected:
  void SetUp() override {
    WorkerFixture::SetUp();
    health_ = std::make_unique<WorkerHealth>(experts_.get(), &manual_);
  }
  ManualClock manual_;
  std::unique_ptr<WorkerHealth> health_;
};

TEST_F(WorkerHealthTest, IsReadyFromTheFirstCommitToTheLastDrop) {
  const Health empty = health_->Look();
  EXPECT_TRUE(empty.live());
  EXPECT_THAT(empty.not_ready, HasSubstr("no deployment uses this worker"));

  std::promise<absl::Status> staged;
  experts_->StagePlan(testing::MakePrepare(MakePlan(1, 2)),
                      [&](const absl::Status& status) { staged.set_value(status); });
  SY_ASSERT_OK(staged.get_future().get());
  EXPECT_THAT(health_->Look().not_ready, HasSubstr("the first epoch is being loaded"));
  experts_->Activate("demo", Epoch{1});
  EXPECT_TRUE(health_->Look().ready());

  // While a newer one is prepared and given up.
  std::promise<absl::Status> next;
  experts_->StagePlan(testing::MakePrepare(MakePlan(2, 2)),
                      [&](const absl::Status& status) { next.set_value(status); });
  SY_ASSERT_OK(next.get_future().get());
  EXPECT_TRUE(health_->Look().ready());
  experts_->Drop("demo", Epoch{2});
  EXPECT_TRUE(health_->Look().ready());

  experts_->Drop("demo", Epoch{1});
  EXPECT_FALSE(health_->Look().ready());
  EXPECT_TRUE(health_->Look().live());
}

TEST_F(WorkerHealthTest, IsDeadWhenTheDataThreadStandsStillAndAliveWhenItTurnsAgain) {
  Commit(1);
  std::promise<void> entered;
  std::promise<void> gate;
  // Called on the data thread, at once for an epoch that it does not know.
  experts_->Retire("demo", Epoch{99}, [&] {
    entered.set_value();
    gate.get_future().wait();
  });
  entered.get_future().wait();

  for (Duration still = seconds(0); still < kStandstillMax; still += seconds(1)) {
    EXPECT_TRUE(health_->Look().ready());
    manual_.Advance(seconds(1));
  }
  const Health still = health_->Look();
  EXPECT_THAT(still.not_live, HasSubstr("has stood still for 10 s; restart the process"));
  EXPECT_FALSE(still.ready());

  gate.set_value();
  const TimePoint end = clock_.Now() + seconds(20);
  while (!health_->Look().live() && clock_.Now() < end) {
  }
  EXPECT_TRUE(health_->Look().ready());
}

}  // namespace
}  // namespace switchyard
