// A real coordinator in this process, with a model that exists by its hashes alone.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

#include "coordinator/driver.h"
#include "coordinator/store/memory_store.h"
#include "core/base/log.h"
#include "core/rng.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::testing {

class DriverFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    DriverOptions options;
    options.coordinator.lease_ttl = std::chrono::seconds(60);
    SY_ASSERT_OK_AND_ASSIGN(
        driver_,
        Driver::Create(options, {.store = std::make_unique<MemoryStore>(),
                                 .check_model = [](const std::string&) { return MakeLayout(); },
                                 .load_model = [](const std::string&,
                                                  const ManifestProgress&) { return MakeFacts(); },
                                 .clock = &clock_,
                                 .rng = &rng_,
                                 .logger = &logger_}));
  }
  // A deployment "demo" that one worker serves.
  void Apply() {
    auto applied = std::make_shared<std::promise<absl::Status>>();
    driver_->ApplyDeployment(MakeSpec(1), /*dry_run=*/false,
                             [applied](const absl::StatusOr<DeploymentView>& deployment) {
                               applied->set_value(deployment.status());
                             });
    std::future<absl::Status> result = applied->get_future();
    ASSERT_EQ(result.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    SY_ASSERT_OK(result.get());
  }
  // Until `condition` holds; false after 30 s.
  bool Eventually(const std::function<bool()>& condition) {
    const TimePoint end = clock_.Now() + std::chrono::seconds(30);
    while (!condition()) {
      if (clock_.Now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool ServesEventually() {
    return Eventually([this] {
      const CoordinatorView view = driver_->View();
      return view.deployments.size() == 1 && view.deployments[0].serving != nullptr;
    });
  }

  SteadyClock clock_;
  SystemRng rng_;
  Logger logger_{"test", LogLevel::kOff};
  std::unique_ptr<Driver> driver_;
};

}  // namespace switchyard::testing
