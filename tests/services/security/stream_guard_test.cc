#include "services/security/stream_guard.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr char kWatchPlan[] = "/switchyard.v1.CoordinatorService/WatchPlan";
constexpr char kId[] = "spiffe://d/a";
constexpr char kOther[] = "spiffe://d/b";

class FakeStream : public StreamGuard::Stream {
 public:
  void Revoke(const absl::Status& why) override {
    revoked.push_back(why);
    if (on_revoke) on_revoke();
  }
  void Cut() override { ++cuts; }

  std::vector<absl::Status> revoked;
  int cuts = 0;
  std::function<void()> on_revoke;
};

class StreamGuardTest : public ::testing::Test {
 protected:
  void SetUp() override { Make(clock_, std::chrono::hours(1)); }
  // The guard's own thread looks so often.
  void Make(std::shared_ptr<const Clock> clock, Duration interval) {
    auto watch = TableWatch::Create(
        [this]() -> absl::StatusOr<IdentityTable> {
          std::vector<Identity> rows{{kOther, {Role::kSource}}};
          const MutexLock lock(mutex_);
          if (!roles_.empty()) rows.push_back({kId, roles_});
          return IdentityTable::Create(std::move(rows));
        },
        std::move(clock), nullptr);
    SY_ASSERT_OK(watch.status());
    guard_ = std::make_unique<StreamGuard>(*watch, interval);
  }
  void SetRoles(Roles roles) {
    const MutexLock lock(mutex_);
    roles_ = roles;
  }
  void Change(Roles roles) {
    SetRoles(roles);
    clock_->Advance(TableWatch::kInterval);
  }
  // Until the table has been read twice since it changed.
  void LookTwice() {
    guard_->Look(now_);
    clock_->Advance(TableWatch::kInterval);
    guard_->Look(now_);
  }

  Mutex mutex_;
  Roles roles_ SY_GUARDED_BY(mutex_){Role::kSource};
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::unique_ptr<StreamGuard> guard_;
  const TimePoint now_ = SteadyClock().Now();
};

TEST_F(StreamGuardTest, EndsTheStreamsOfARemovedId) {
  FakeStream stream;
  FakeStream other;
  guard_->Add(&stream, {kId, kWatchPlan});
  guard_->Add(&other, {kOther, kWatchPlan});
  guard_->Look(now_);
  EXPECT_TRUE(stream.revoked.empty());

  Change({});
  LookTwice();
  guard_->Look(now_);
  guard_->Remove(&stream);
  guard_->Remove(&other);

  ASSERT_EQ(stream.revoked.size(), 1U);
  EXPECT_THAT(stream.revoked[0], FailsWith(absl::StatusCode::kUnauthenticated, Reason::kTransport));
  EXPECT_THAT(std::string(stream.revoked[0].message()), HasSubstr(kId));
  EXPECT_TRUE(other.revoked.empty());
}

TEST_F(StreamGuardTest, EndsThoseThatTheRolesOfTheIdDoNotHaveAnyMore) {
  FakeStream watch;
  FakeStream forward;
  guard_->Add(&watch, {kId, kWatchPlan});
  guard_->Add(&forward, {kId, "/switchyard.v1.ExpertService/Forward"});

  Change({Role::kWorker});
  LookTwice();
  guard_->Remove(&watch);
  guard_->Remove(&forward);

  EXPECT_TRUE(watch.revoked.empty());
  ASSERT_EQ(forward.revoked.size(), 1U);
  EXPECT_THAT(forward.revoked[0],
              FailsWith(absl::StatusCode::kPermissionDenied, Reason::kTransport));
}

TEST_F(StreamGuardTest, CutsOffWhatDoesNotEnd) {
  FakeStream stream;
  guard_->Add(&stream, {kId, kWatchPlan});
  Change({});
  LookTwice();
  guard_->Look(now_ + StreamGuard::kCutAfter - std::chrono::milliseconds(1));
  EXPECT_EQ(stream.cuts, 0);

  guard_->Look(now_ + StreamGuard::kCutAfter);
  guard_->Look(now_ + 2 * StreamGuard::kCutAfter);
  guard_->Remove(&stream);

  EXPECT_EQ(stream.cuts, 1);
}

// gRPC may begin another call on the thread that ends one.
TEST_F(StreamGuardTest, AStreamMayComeWhileAnotherIsEnded) {
  FakeStream stream;
  FakeStream comes;
  stream.on_revoke = [&] { guard_->Add(&comes, {kOther, kWatchPlan}); };
  guard_->Add(&stream, {kId, kWatchPlan});

  Change({});
  LookTwice();
  guard_->Remove(&stream);
  guard_->Remove(&comes);

  EXPECT_EQ(stream.revoked.size(), 1U);
}

TEST_F(StreamGuardTest, ARemovedStreamIsNotTouched) {
  FakeStream stream;
  guard_->Add(&stream, {kId, kWatchPlan});
  guard_->Remove(&stream);
  guard_->Remove(&stream);

  Change({});
  LookTwice();

  EXPECT_TRUE(stream.revoked.empty());
}

// One stream ends while the guard is about to end it, and another one gets its memory.
TEST_F(StreamGuardTest, TheNextStreamInTheSameMemoryGoesOn) {
  FakeStream streams[2];
  streams[0].on_revoke = [&] {
    guard_->Remove(&streams[1]);
    guard_->Add(&streams[1], {kOther, kWatchPlan});
  };
  for (FakeStream& stream : streams) guard_->Add(&stream, {kId, kWatchPlan});

  Change({});
  LookTwice();
  guard_->Look(now_ + StreamGuard::kCutAfter);
  for (FakeStream& stream : streams) guard_->Remove(&stream);

  EXPECT_EQ(streams[0].revoked.size(), 1U);
  EXPECT_TRUE(streams[1].revoked.empty());
  EXPECT_EQ(streams[1].cuts, 0);
}

TEST_F(StreamGuardTest, OneReadingEndsNothing) {
  FakeStream stream;
  guard_->Add(&stream, {kId, kWatchPlan});
  for (int i = 0; i < 3; ++i) {
    Change({});
    guard_->Look(now_);
    guard_->Look(now_);  // of the same reading
    Change({Role::kSource});
    guard_->Look(now_);
  }
  EXPECT_TRUE(stream.revoked.empty());

  Change({});
  LookTwice();
  guard_->Remove(&stream);

  EXPECT_EQ(stream.revoked.size(), 1U);
}

// Without anybody who calls Look.
TEST_F(StreamGuardTest, LooksByItself) {
  struct Waited : FakeStream {
    void Revoke(const absl::Status& /*why*/) override {
      const MutexLock lock(mutex);
      ended = true;
      changed.NotifyAll();
    }
    Mutex mutex;
    CondVar changed;
    bool ended SY_GUARDED_BY(mutex) = false;
  } stream;
  Make(std::make_shared<SteadyClock>(), std::chrono::milliseconds(10));
  guard_->Add(&stream, {kId, kWatchPlan});
  SetRoles({});
  {
    const MutexLock lock(stream.mutex);
    const TimePoint until = now_ + std::chrono::seconds(20);
    while (!stream.ended && stream.changed.WaitUntil(stream.mutex, until)) {
    }
    EXPECT_TRUE(stream.ended);
  }
  guard_->Remove(&stream);
}

}  // namespace
}  // namespace switchyard
