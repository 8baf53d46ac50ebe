#include "coordinator/view.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// Tables and JSON show these words; programs compare with them.
TEST(ViewTest, StatesHaveTheNamesThatTablesShow) {
  EXPECT_EQ(WorkerStateName(WorkerState::kLive), "live");
  EXPECT_EQ(WorkerStateName(WorkerState::kDisconnected), "disconnected");
  EXPECT_EQ(WorkerStateName(WorkerState::kLeaving), "leaving");
  EXPECT_EQ(DeploymentStateName(DeploymentState::kPending), "pending");
  EXPECT_EQ(DeploymentStateName(DeploymentState::kServing), "serving");
  EXPECT_EQ(DeploymentStateName(DeploymentState::kUnavailable), "unavailable");
}

}  // namespace
}  // namespace switchyard
