// A Source over fake runners: opening, waiting, closing, and plans on their way to a runner.
#include "worker/source/source.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "tests/testing/fake_runner.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::FailsWith;

class SourceTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(&coordinator_); }
  // A Source whose sessions are those of `channel`.
  void Start(SessionChannel* channel) {
    SourceOptions options;
    options.coordinator = channel;
    options.clock = &clock_;
    options.make_runner =
        [this](SessionGrant grant,
               const std::function<void()>& wake) -> absl::StatusOr<std::unique_ptr<StepRunner>> {
      return std::make_unique<testing::FakeRunner>(&steps_, std::move(grant), wake, nullptr);
    };
    source_ = Source::Create(std::move(options));
  }

  static absl::StatusOr<SessionGrant> Grant(const OpenSessionRequest& request) {
    SessionGrant grant;
    grant.request = request;
    grant.plan.epoch = Epoch{1};
    return grant;
  }
  static absl::Status WriteOne(const SessionGrant& /*grant*/, const StepRequest& request) {
    *static_cast<float*>(request.y) = 1;
    return absl::OkStatus();
  }
  absl::StatusOr<Source::SessionRef> Open(Phase phase) {
    OpenSessionRequest request;
    request.phase = phase;
    return source_->Open(request, seconds(10));
  }
  StepRequest Request() {
    StepRequest request;
    request.y = &y_;
    return request;
  }

  testing::GrantingChannel coordinator_{&Grant};
  testing::FakeSteps steps_{&WriteOne};
  SteadyClock clock_;
  float y_ = 0;
  std::unique_ptr<Source> source_;
};

TEST_F(SourceTest, WaitTakesTheResultAndUsesTheTicketUp) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, source_->Submit(session, Request()));
  SY_ASSERT_OK_AND_ASSIGN(const bool done, source_->IsDone(session, ticket));
  EXPECT_TRUE(done);

  SY_EXPECT_OK(source_->Wait(session, ticket));

  EXPECT_EQ(y_, 1);
  EXPECT_THAT(source_->Wait(session, ticket),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
}

TEST_F(SourceTest, AWakeEndsTheSleepOfAThreadThatWaits) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  steps_.Block(true);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, source_->Submit(session, Request()));
  std::thread waiter([&] { SY_EXPECT_OK(source_->Wait(session, ticket)); });

  steps_.Block(false);

  waiter.join();
  EXPECT_EQ(y_, 1);
}

// Callers that have just driven are expected back soon, but a device may be done before.
TEST_F(SourceTest, AStepGoesOnByItsDeviceWhileNobodyWaits) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  steps_.awaits_device = true;
  SY_ASSERT_OK(source_->Submit(session, Request()).status());
  const int before = steps_.polled;

  const auto until = std::chrono::steady_clock::now() + seconds(20);
  while (steps_.polled == before && std::chrono::steady_clock::now() < until) {
    steps_.Block(false);  // wakes, as the device's event does
  }

  EXPECT_GT(steps_.polled, before);
}

TEST_F(SourceTest, ClosingFailsThreadsThatWaitAndLaterCalls) {
  const auto closed = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  steps_.Block(true);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, source_->Submit(session, Request()));
  std::thread waiter([&] { EXPECT_THAT(source_->Wait(session, ticket), closed); });

  SY_EXPECT_OK(source_->Close(session, seconds(10)));

  waiter.join();
  EXPECT_EQ(y_, 0);
  EXPECT_THAT(source_->Submit(session, Request()), closed);
  EXPECT_THAT(source_->IsDone(session, ticket), closed);
  EXPECT_THAT(source_->Status(session), closed);
  EXPECT_THAT(source_->Close(session, seconds(10)), closed);
}

TEST_F(SourceTest, PlansReachTheRunnerWhileNobodyWaits) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  PlanUpdate update;
  update.plan.epoch = Epoch{2};

  coordinator_.watch->OnPlan(update);

  Epoch epoch;
  while (epoch != Epoch{2}) {
    SY_ASSERT_OK_AND_ASSIGN(const RunnerStatus status, source_->Status(session));
    epoch = status.grant.plan.epoch;
  }
  EXPECT_EQ(epoch, Epoch{2});
}

// The large step's thread calls its runner again and again, and the other session gets in between.
TEST_F(SourceTest, OtherSessionsStepsGoBetweenThePiecesOfALargeOne) {
  std::atomic<bool> other_done = false;
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  steps_.put_off = [&](const SessionGrant& grant) {
    return grant.request.phase == Phase::kPrefill && !other_done &&
           std::chrono::steady_clock::now() < until;
  };
  SY_ASSERT_OK_AND_ASSIGN(const auto large, Open(Phase::kPrefill));
  SY_ASSERT_OK_AND_ASSIGN(const auto small, Open(Phase::kDecode));
  std::thread submitter([&] { SY_EXPECT_OK(source_->Submit(large, Request())); });
  ASSERT_TRUE(steps_.WaitForSubmitted(1));

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, source_->Submit(small, Request()));
  SY_EXPECT_OK(source_->Wait(small, ticket));
  EXPECT_LT(std::chrono::steady_clock::now(), until) << "it had to wait for the large step";

  other_done = true;
  submitter.join();
}

TEST_F(SourceTest, ASessionMayBeClosedBetweenThePiecesOfItsStep) {
  std::atomic<bool> closed = false;
  steps_.put_off = [&](const SessionGrant& /*grant*/) { return !closed; };
  SY_ASSERT_OK_AND_ASSIGN(const auto session, source_->Open({}, seconds(10)));
  std::thread submitter([&] { SY_EXPECT_OK(source_->Submit(session, Request())); });
  ASSERT_TRUE(steps_.WaitForSubmitted(1));

  SY_EXPECT_OK(source_->Close(session, seconds(10)));

  submitter.join();
  closed = true;
}

TEST_F(SourceTest, AGrantWhoseBindingHasNoRunnerIsRefused) {
  SourceOptions options;
  options.coordinator = &coordinator_;
  options.clock = &clock_;
  options.make_runner =
      [](SessionGrant /*grant*/,
         const std::function<void()>& /*wake*/) -> absl::StatusOr<std::unique_ptr<StepRunner>> {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported, "no runner");
  };
  const auto source = Source::Create(std::move(options));

  EXPECT_THAT(source->Open({}, seconds(10)),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// The coordinator chooses a group unless the source says what is against it.
class ChosenGroupTest : public SourceTest {
 protected:
  void SetUp() override {
    steps_.start = [this](const SessionGrant& grant) {
      if (grant.binding == Binding::kCollective) return refused_;
      obstacle_ = grant.request.group.obstacle;
      return absl::OkStatus();
    };
    Start(&chooser_);
    request_.group.name = "engine";
  }
  static absl::StatusOr<SessionGrant> Choose(const OpenSessionRequest& request) {
    SY_ASSIGN_OR_RETURN(SessionGrant grant, Grant(request));
    const bool chosen = request.binding == BindingChoice::kAuto && request.group.obstacle.empty();
    if (chosen || request.binding == BindingChoice::kCollective) {
      grant.binding = Binding::kCollective;
    }
    return grant;
  }

  testing::GrantingChannel chooser_{&Choose};
  absl::Status refused_ = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                                    std::string(2 * kGroupObstacleMax, 'x'));
  std::string obstacle_;
  OpenSessionRequest request_;
};

TEST_F(ChosenGroupTest, OpensOverP2pWhereTheGroupCannotBeAndSaysWhy) {
  SY_ASSERT_OK(source_->Open(request_, seconds(10)).status());
  EXPECT_EQ(obstacle_.size(), kGroupObstacleMax);
  EXPECT_EQ(obstacle_.substr(0, 3), "xxx");
}

TEST_F(ChosenGroupTest, AGroupThatWasAskedForOrMayComeLaterIsNotGivenUp) {
  request_.binding = BindingChoice::kCollective;
  EXPECT_THAT(source_->Open(request_, seconds(10)),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
  request_.binding = BindingChoice::kAuto;
  refused_ = MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "others are missing");
  EXPECT_THAT(source_->Open(request_, seconds(10)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_EQ(obstacle_, "");
}

}  // namespace
}  // namespace switchyard
