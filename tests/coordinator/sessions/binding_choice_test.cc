// How rows travel where the source leaves it to the coordinator.
#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/group_messages.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

// Sessions of two workers, whose sources may be a group.
class BindingChoiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(testing::MakeSpec(2)));
    cluster.Advance(seconds(5));
    order.model = "m";
    order.phase = Phase::kDecode;
    order.max_tokens = 64;
    order.group = {.name = "engine", .source = 0, .sources = 2, .device = DeviceKind::kCpu};
  }
  // Watched, as sources do.
  SessionGrant Open() {
    auto grant = cluster.Open(order);
    EXPECT_TRUE(grant.ok()) << grant.status();
    if (!grant.ok()) return {};
    cluster.Step(
        WatchStarted{WatchId{++last_watch},
                     {grant->session, "demo", Phase::kDecode, grant->plan.epoch, grant->hash}});
    return *grant;
  }
  void Close(const SessionGrant& grant) {
    cluster.Step(SessionEnded{RequestId{77}, grant.session});
  }
  Cluster cluster;
  std::uint64_t last_watch = 100;
  OpenSessionRequest order;
};

TEST_F(BindingChoiceTest, AutoIsCollectiveForSourcesOfAGroup) {
  const SessionGrant first = Open();
  order.group.source = 1;
  const SessionGrant second = Open();

  EXPECT_EQ(first.binding, Binding::kCollective);
  EXPECT_EQ(first.request.binding, BindingChoice::kCollective);
  EXPECT_EQ(first.binding_reason, "auto is collective where the group can be");
  EXPECT_EQ(second.group.id, first.group.id);
  const SessionView view = cluster.Sessions()[0];
  EXPECT_EQ(view.binding, BindingChoice::kCollective);
  EXPECT_EQ(view.binding_reason, first.binding_reason);
  EXPECT_EQ(view.ranks, 4);
}

TEST_F(BindingChoiceTest, AutoIsP2pWithoutAGroupOrWhereItCannotBe) {
  const OpenSessionRequest group = order;
  order.group = {};
  EXPECT_EQ(Open().binding_reason, "auto is p2p for a source that names no group");

  order = group;
  order.group.device = DeviceKind::kCuda;
  SessionGrant grant = Open();
  EXPECT_EQ(grant.binding, Binding::kP2p);
  EXPECT_EQ(grant.request.binding, BindingChoice::kP2p);
  EXPECT_EQ(grant.request.source, DeviceKind::kCpu);
  EXPECT_EQ(grant.group.id, GroupId());
  EXPECT_THAT(grant.binding_reason, HasSubstr("no dispatch configs for sources of kind"));
  Close(grant);

  order = group;
  order.group.device.reset();
  grant = Open();
  EXPECT_EQ(grant.binding_reason, "auto is p2p: the source offers no device as a rank of a group");
  Close(grant);

  order = group;
  order.strict = true;
  grant = Open();
  EXPECT_THAT(grant.binding_reason, HasSubstr("is neither strict"));
  Close(grant);

  order = group;
  cluster.Join("w2");  // sixteen experts on three workers
  cluster.Advance(seconds(5));
  order.combine_dtype = DispatchDtype::kFp8;
  order.mode = DispatchMode::kNormal;
  grant = Open();
  EXPECT_EQ(grant.binding, Binding::kP2p);
  EXPECT_EQ(grant.request.combine_dtype, DispatchDtype::kBf16);
  EXPECT_EQ(grant.binding_reason,
            "auto is p2p: deployment demo cannot serve a collective session: 16 experts do not "
            "divide by 3 workers");

  order = group;
  order.binding = BindingChoice::kP2p;
  EXPECT_EQ(Open().binding_reason, "the source asked for it");
}

// A mistake that p2p would hide.
TEST_F(BindingChoiceTest, AutoRefusesAPlaceThatIsNone) {
  const auto refused = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);
  const OpenSessionRequest group = order;
  order.group.source = 2;
  EXPECT_THAT(cluster.Open(order), refused);
  order = group;
  order.group.obstacle = std::string(kGroupObstacleMax + 1, 'x');
  EXPECT_THAT(cluster.Open(order), refused);
  order = group;
  order.group.name.clear();
  EXPECT_THAT(cluster.Open(order), refused) << "two sources of a group without a name";
}

// The others would wait for it in vain.
TEST_F(BindingChoiceTest, WhatOneSourceCannotHoldsForItsGroup) {
  const OpenSessionRequest group = order;
  order.group.source = 1;
  order.group.obstacle = "its memory is out of reach";
  const SessionGrant refused = Open();
  EXPECT_EQ(refused.binding, Binding::kP2p);
  EXPECT_EQ(refused.binding_reason,
            "auto is p2p: this source cannot be in group engine: its memory is out of reach");

  order = group;
  const SessionGrant other = Open();
  EXPECT_EQ(other.binding_reason,
            "auto is p2p: source 1 of group engine cannot be in it: its memory is out of reach");
  order.group.name = "another";
  EXPECT_EQ(Open().binding, Binding::kCollective);
  order = group;
  order.caller = "somebody else's";
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant theirs, cluster.Open(order));
  EXPECT_EQ(theirs.binding, Binding::kCollective);

  // It comes back, and its peer is still over p2p.
  Close(refused);
  order = group;
  order.group.source = 1;
  const SessionGrant again = Open();
  EXPECT_EQ(again.binding_reason, "auto is p2p: source 0 of group engine makes its steps over p2p");
  Close(again);
  Close(other);
  EXPECT_EQ(Open().binding, Binding::kCollective);
}

// It lingers, but nobody is there that would be waited for.
TEST_F(BindingChoiceTest, ASourceThatHasDiedIsNoObstacle) {
  const OpenSessionRequest group = order;
  order.strict = true;
  Open();
  cluster.Step(WatchStopped{WatchId{last_watch}});
  cluster.Advance(seconds(6));
  ASSERT_EQ(cluster.Sessions().size(), 1U);

  order = group;
  EXPECT_EQ(Open().binding, Binding::kCollective);
}

// What it names is not kept: it would be shown to others.
TEST_F(BindingChoiceTest, AGroupOfASessionThatAskedForItsBindingIsNoObstacle) {
  order.group.obstacle = "nobody asked";
  for (const BindingChoice asked : {BindingChoice::kP2p, BindingChoice::kCollective}) {
    order.binding = asked;
    Open();
  }
  order.binding = BindingChoice::kAuto;
  order.group.obstacle.clear();
  order.group.source = 1;
  EXPECT_EQ(Open().binding, Binding::kCollective);
}

}  // namespace
}  // namespace switchyard
