#include "coordinator/replan_gate.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReplanGateTest : public ::testing::Test {
 protected:
  ReplanGateTest() {
    options_.join_settle = milliseconds(100);
    spec_.min_workers = 2;
    spec_.join_timeout = seconds(20);
  }
  static ReplanGate::Situation Serving() {
    return {.holder = "",
            .disconnected = "",
            .serving_worker_present = true,
            .serving_holds = true,
            .candidates = {"w0", "w1"}};
  }
  static ReplanGate::Situation NotServing(const std::vector<std::string>& candidates) {
    return {.holder = "",
            .disconnected = "",
            .serving_worker_present = false,
            .serving_holds = false,
            .candidates = candidates};
  }
  std::string Reason(const ReplanGate::Situation& situation, Duration after = {}) {
    return gate_.ReasonToWait(spec_, situation, now_ + after);
  }

  CoordinatorOptions options_;
  DeploymentSpec spec_;
  TimePoint now_{seconds(100)};
  ReplanGate gate_{&options_, now_};
};

TEST_F(ReplanGateTest, IsOpenWhileNothingIsInTheWay) { EXPECT_EQ(Reason(Serving()), ""); }

TEST_F(ReplanGateTest, WaitsForTheWorkersOfStoredPlansUpToJoinTimeout) {
  PlanUpdate stored;
  stored.plan.workers.resize(2);
  stored.plan.workers[0].id = "w0";
  stored.plan.workers[1].id = "w1";
  gate_.ExpectWorkersOf(&stored);
  EXPECT_EQ(Reason(NotServing({})), "waiting for workers of the stored plan to come back: w0, w1");

  gate_.OnJoined("w0", now_);
  EXPECT_FALSE(gate_.Expects("w0"));
  EXPECT_TRUE(gate_.Expects("w1"));

  EXPECT_FALSE(gate_.EndExpectations(spec_.join_timeout, now_ + seconds(19)));
  EXPECT_TRUE(gate_.EndExpectations(spec_.join_timeout, now_ + seconds(20)));
  EXPECT_FALSE(gate_.EndExpectations(spec_.join_timeout, now_ + seconds(21)));
  EXPECT_EQ(Reason(Serving(), seconds(21)), "");
}

TEST_F(ReplanGateTest, WaitsForOldEpochsAndForStreamsThatMayComeBack) {
  ReplanGate::Situation situation = Serving();
  situation.disconnected = "w1";
  EXPECT_EQ(Reason(situation), "waiting for worker w1, whose stream has just ended");

  situation.holder = "waiting for worker w0 to free epoch 3";
  EXPECT_EQ(Reason(situation), "waiting for worker w0 to free epoch 3");
}

TEST_F(ReplanGateTest, LetsJoinsAndLeavesSettleUnlessAWorkerIsLost) {
  gate_.OnJoined("w2", now_);
  EXPECT_EQ(Reason(Serving(), milliseconds(99)), "waiting for more workers to join or leave");
  EXPECT_EQ(Reason(Serving(), milliseconds(100)), "");

  gate_.OnLeaveRequested(now_ + seconds(1));
  EXPECT_EQ(Reason(Serving(), milliseconds(1050)), "waiting for more workers to join or leave");
  ReplanGate::Situation broken = Serving();
  broken.serving_holds = false;
  EXPECT_EQ(Reason(broken, milliseconds(1050)), "");
}

TEST_F(ReplanGateTest, ConstantJoinsDoNotPostponeAPlanForEver) {
  for (int i = 0; i < 20; ++i) {
    gate_.OnJoined("w2", now_ + milliseconds(50 * i));
    EXPECT_EQ(Reason(Serving(), milliseconds(50 * i)), "waiting for more workers to join or leave");
  }
  gate_.OnJoined("w2", now_ + milliseconds(1000));
  EXPECT_EQ(Reason(Serving(), milliseconds(1000)), "");
}

TEST_F(ReplanGateTest, HoldsAfterAMassLossUntilNothingMoreIsLost) {
  ReplanGate::Situation situation = Serving();
  situation.serving_holds = false;
  situation.serving_workers = 6;
  situation.lost_workers = 2;
  EXPECT_EQ(Reason(situation), "") << "a third";

  situation.lost_workers = 3;
  EXPECT_EQ(Reason(situation, seconds(1)),
            "3 of 6 workers are lost: waiting for them to come back");
  situation.lost_workers = 4;
  EXPECT_NE(Reason(situation, seconds(5)), "");
  EXPECT_NE(Reason(situation, milliseconds(9999)), "") << "5 s after the last loss";
  EXPECT_EQ(Reason(situation, seconds(10)), "");

  situation.lost_workers = 0;
  EXPECT_EQ(Reason(situation, seconds(11)), "") << "they are back";
}

TEST_F(ReplanGateTest, OneOfTwoWorkersIsNoMassLoss) {
  ReplanGate::Situation situation = Serving();
  situation.serving_holds = false;
  situation.serving_workers = 2;
  situation.lost_workers = 1;
  EXPECT_EQ(Reason(situation), "");
}

TEST_F(ReplanGateTest, WaitsForMinWorkersUpToJoinTimeoutFromTheFirst) {
  EXPECT_EQ(Reason(NotServing({})), "waiting for workers: 0 of 2 are connected (none)");
  EXPECT_EQ(Reason(NotServing({"w0"}), seconds(50)),
            "waiting for workers: 1 of 2 are connected (w0)");
  EXPECT_NE(Reason(NotServing({"w0"}), seconds(69)), "");
  EXPECT_EQ(Reason(NotServing({"w0"}), seconds(70)), "") << "20 s after the first";
  EXPECT_EQ(Reason(NotServing({"w0", "w1"}), seconds(50)), "");
}

TEST_F(ReplanGateTest, StartsJoinTimeoutAgainWhenAllHaveGone) {
  Reason(NotServing({"w0"}));
  Reason(NotServing({}), seconds(10));

  EXPECT_NE(Reason(NotServing({"w0"}), seconds(25)), "");
  EXPECT_EQ(Reason(NotServing({"w0"}), seconds(45)), "");
}

}  // namespace
}  // namespace switchyard
