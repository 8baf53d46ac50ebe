#include "services/coordinator/coordinator_health.h"

#include <future>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "coordinator/driver.h"
#include "coordinator/store/memory_store.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class CoordinatorHealthTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(driver_, Driver::Create({}, {.store = std::make_unique<MemoryStore>(),
                                                         .check_model = nullptr,
                                                         .load_model = nullptr,
                                                         .clock = &steady_,
                                                         .rng = &rng_,
                                                         .logger = &logger_}));
    health_ = std::make_unique<CoordinatorHealth>(driver_.get(), &clock_);
  }

  SteadyClock steady_;
  SystemRng rng_;
  Logger logger_{"coordinator", LogLevel::kOff};
  ManualClock clock_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<CoordinatorHealth> health_;
};

TEST_F(CoordinatorHealthTest, IsReadyWithoutWorkersOnceItsPortIsOpen) {
  const Health before = health_->Look();
  EXPECT_TRUE(before.live());
  EXPECT_THAT(before.not_ready, HasSubstr("the port is closed"));

  health_->SetAccepting(true);
  EXPECT_TRUE(health_->Look().ready());

  health_->SetAccepting(false);
  EXPECT_FALSE(health_->Look().ready());
  EXPECT_TRUE(health_->Look().live());
}

TEST_F(CoordinatorHealthTest, IsDeadWhenItsThreadStandsStillAndAliveWhenItTurnsAgain) {
  health_->SetAccepting(true);
  std::promise<void> entered;
  std::promise<void> gate;
  driver_->CloseSession(SessionId{1, 2}, [&](const absl::Status&) {
    entered.set_value();
    gate.get_future().wait();
  });
  entered.get_future().wait();

  for (Duration still = seconds(0); still < kStandstillMax; still += seconds(1)) {
    EXPECT_TRUE(health_->Look().ready());
    clock_.Advance(seconds(1));
  }
  const Health still = health_->Look();
  EXPECT_THAT(still.not_live, HasSubstr("has stood still for 10 s; restart the process"));
  EXPECT_FALSE(still.ready());

  gate.set_value();
  const TimePoint end = steady_.Now() + seconds(20);
  while (!health_->Look().live() && steady_.Now() < end) {
  }
  EXPECT_TRUE(health_->Look().ready());
}

}  // namespace
}  // namespace switchyard
