// What tenants may open and learn: a model that is not theirs does not exist, and their limits hold
// for all their callers together, whatever others have open.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/grant_signature.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRed[] = "spiffe://d/red";
constexpr char kRed2[] = "spiffe://d/red-2";
constexpr char kBlue[] = "spiffe://d/blue";
const auto kNoModel = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel);
const auto kFull = FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions);

class TenantsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster.models["/models/n"] = cluster.models.at("/models/m");
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(Spec("demo", "m")));
    SY_ASSERT_OK(cluster.Apply(Spec("other", "n")));
    ASSERT_EQ(cluster.Serving("demo"), 1U);
    ASSERT_NE(cluster.Serving("other"), 0U);
  }
  static DeploymentSpec Spec(const std::string& name, const std::string& model) {
    DeploymentSpec spec = testing::MakeSpec(2);
    spec.name = name;
    spec.model = model;
    spec.checkpoint = "/models/" + model;
    return spec;
  }
  static TenantRef Of(Tenant tenant) { return std::make_shared<const Tenant>(std::move(tenant)); }
  struct What {
    std::string caller = kRed;
    std::string deployment = {};
    std::string model = {};
    std::string on_behalf_of = {};
    std::int32_t max_tokens = 0;
  };
  absl::StatusOr<SessionGrant> Open(const What& what, TenantRef tenant) {
    OpenSessionRequest order;
    order.phase = Phase::kDecode;
    order.deployment = what.deployment;
    order.model = what.model;
    order.caller = what.caller;
    order.on_behalf_of = what.on_behalf_of;
    order.max_tokens = what.max_tokens;
    return cluster.Open(order, std::move(tenant));
  }
  static WatchRequest WatchAs(const std::string& caller, const SessionGrant& grant) {
    const GrantClaims claims = ClaimsOf(grant);
    WatchRequest request{grant.session, grant.plan.deployment, Phase::kDecode, grant.plan.epoch,
                         grant.hash};
    request.cookie = claims.cookie;
    request.mode = claims.mode;
    request.max_tokens = claims.max_tokens;
    request.signature = grant.signature;
    request.caller = caller;
    return request;
  }
  absl::Status WatchEnds(const WatchRequest& request, TenantRef tenant) {
    const WatchId watch = cluster.Watch(request, std::move(tenant));
    const auto closed = cluster.closed_watches.find(watch);
    return closed == cluster.closed_watches.end() ? absl::OkStatus() : closed->second;
  }
  absl::Status Close(const std::string& caller, SessionId session) {
    cluster.closed_session = absl::InternalError("no answer");
    cluster.Step(SessionEnded{RequestId{1000}, session, caller});
    return cluster.closed_session;
  }

  Cluster cluster;
};

TEST_F(TenantsTest, AModelThatIsNotTheirsDoesNotExist) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"m"}});

  const absl::Status denied = Open({.deployment = "other"}, red).status();
  const absl::Status never = Open({.deployment = "never"}, red).status();
  EXPECT_THAT(denied, kNoModel);
  EXPECT_EQ(absl::StrReplaceAll(denied.ToString(), {{"other", "X"}}),
            absl::StrReplaceAll(never.ToString(), {{"never", "X"}}));
  const absl::Status by_model = Open({.model = "n"}, red).status();
  const absl::Status no_model = Open({.model = "z"}, red).status();
  EXPECT_THAT(by_model, kNoModel);
  EXPECT_EQ(absl::StrReplaceAll(by_model.ToString(), {{"\"n\"", "X"}, {"=n", "=X"}}),
            absl::StrReplaceAll(no_model.ToString(), {{"\"z\"", "X"}, {"=z", "=X"}}));
  // Nor by way of a deployment of its own.
  EXPECT_THAT(Open({.deployment = "demo", .model = "n"}, red), kNoModel);
  // There is one deployment for it, so that it need not name it.
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open({}, red));
  EXPECT_EQ(grant.plan.deployment, "demo");
  // Others see both.
  EXPECT_THAT(Open({.caller = kBlue}, nullptr),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  SY_EXPECT_OK(Open({.caller = kBlue, .deployment = "other"}, Of({.ids = {kBlue}})).status());
}

// Neither while a deployment comes nor while it goes.
TEST_F(TenantsTest, WhatIsAppliedOrDeletedIsNotShownToThem) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"m"}});
  SY_ASSERT_OK(Open({.caller = kBlue, .deployment = "other"}, nullptr).status());
  SY_ASSERT_OK(cluster.Delete("other").status());
  EXPECT_THAT(
      std::string(Open({.caller = kBlue, .deployment = "other"}, nullptr).status().message()),
      HasSubstr("is being deleted"));
  EXPECT_THAT(std::string(Open({.deployment = "other"}, red).status().message()),
              HasSubstr("there is no deployment \"other\""));

  cluster.models["/models/k"] = cluster.models.at("/models/m");
  cluster.hold_loads = true;
  cluster.Apply(Spec("coming", "k")).IgnoreError();
  EXPECT_THAT(Open({.caller = kBlue, .deployment = "coming"}, nullptr),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(Open({.deployment = "coming"}, red), kNoModel);
}

TEST_F(TenantsTest, WatchesTellNothingOfOtherDeployments) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"m"}});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open({}, red));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant others,
                          Open({.caller = kBlue, .deployment = "other"}, nullptr));
  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, grant), red));

  for (const SessionGrant& of : {grant, others}) {
    WatchRequest hidden = WatchAs(kRed, of);
    hidden.deployment = "other";
    WatchRequest never = hidden;
    never.deployment = "never";
    const absl::Status denied = WatchEnds(hidden, red);
    EXPECT_THAT(denied, kNoModel);
    EXPECT_EQ(absl::StrReplaceAll(denied.ToString(), {{"other", "X"}}),
              absl::StrReplaceAll(WatchEnds(never, red).ToString(), {{"never", "X"}}));
  }
  // A session goes on when its model is taken away; the next one is not opened.
  const TenantRef changed = Of({.name = "red", .ids = {kRed}, .models = {"n"}});
  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, grant), changed));
  EXPECT_THAT(Open({.deployment = "demo"}, changed), kNoModel);
}

TEST_F(TenantsTest, IdsAndGatewaysShareTheLimitAndOthersGoOn) {
  const TenantRef red = Of({.name = "red", .ids = {kRed, kRed2}, .sessions_max = 2});
  const TenantRef blue = Of({.name = "blue", .ids = {kBlue}, .sessions_max = 2});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant first, Open({.deployment = "demo"}, red));
  SY_ASSERT_OK(
      Open({.caller = "spiffe://d/worker", .deployment = "demo", .on_behalf_of = kRed2}, red)
          .status());

  const absl::Status full = Open({.caller = kRed2, .deployment = "demo"}, red).status();
  EXPECT_THAT(full, kFull);
  EXPECT_THAT(std::string(full.message()), HasSubstr("spiffe://d/red-2 has 2 sessions open"));
  EXPECT_THAT(full.ToString(), Not(HasSubstr("blue")));
  EXPECT_THAT(
      Open({.caller = "spiffe://d/worker", .deployment = "demo", .on_behalf_of = kRed}, red),
      kFull);
  SY_EXPECT_OK(Open({.caller = kBlue, .deployment = "demo"}, blue).status());
  SY_EXPECT_OK(Open({.caller = "", .deployment = "demo"}, nullptr).status());

  SY_ASSERT_OK(Close(kRed, first.session));
  SY_EXPECT_OK(Open({.caller = kRed2, .deployment = "demo"}, red).status());
}

TEST_F(TenantsTest, SessionsThatNobodyWatchesOrThatEndGiveTheirPartBack) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .sessions_max = 1, .tokens_max = 64});
  SY_ASSERT_OK(Open({.deployment = "demo", .max_tokens = 64}, red).status());
  EXPECT_THAT(Open({.deployment = "demo", .max_tokens = 1}, red), kFull);

  cluster.Advance(seconds(61), milliseconds(200));
  SY_EXPECT_OK(Open({.deployment = "other", .max_tokens = 64}, red).status());
  EXPECT_THAT(Open({.deployment = "demo", .max_tokens = 1}, red), kFull);
  SY_ASSERT_OK(cluster.Delete("other", /*at_once=*/true).status());
  cluster.Advance(seconds(1));
  SY_EXPECT_OK(Open({.deployment = "demo", .max_tokens = 1}, red).status());
  EXPECT_THAT(Open({.deployment = "demo", .max_tokens = 65}, Of({.ids = {kRed}, .tokens_max = 65})),
              kFull);
}

// Whoever closes a session and keeps its grant could otherwise have it back beyond the limit.
TEST_F(TenantsTest, AClosedSessionComesBackWithinTheLimitOnly) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .sessions_max = 1});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant first, Open({.deployment = "demo"}, red));
  SY_ASSERT_OK(Close(kRed, first.session));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant second, Open({.deployment = "demo"}, red));

  EXPECT_THAT(WatchEnds(WatchAs(kRed, first), red), kFull);
  EXPECT_EQ(cluster.Deployment().sessions, 1);
  SY_ASSERT_OK(Close(kRed, second.session));
  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, first), red));
  EXPECT_THAT(Open({.deployment = "demo"}, red), kFull);
}

TEST_F(TenantsTest, ARestartedCoordinatorCountsWhatItIsShown) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"m"}, .sessions_max = 1});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open({}, red));
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 1U);

  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, grant), red));
  EXPECT_THAT(Open({}, red), kFull);
}

// An operator lowers a limit, and the coordinator restarts: what is open goes on, and nothing more
// is opened.
TEST_F(TenantsTest, SessionsThatWereOpenOutliveALowerLimitAndARestart) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"m"}});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant one, Open({}, red));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant two, Open({}, red));
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 1U);
  const TenantRef lower =
      Of({.name = "red", .ids = {kRed}, .models = {"m"}, .sessions_max = 1, .tokens_max = 1});

  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, one), lower));
  SY_EXPECT_OK(WatchEnds(WatchAs(kRed, two), lower));
  EXPECT_THAT(Open({}, lower), kFull);

  // One that is closed is a new one when it comes back, also in the first minute.
  SY_ASSERT_OK(Close(kRed, two.session));
  EXPECT_THAT(WatchEnds(WatchAs(kRed, two), lower), kFull);
  // And later each is.
  SY_ASSERT_OK(Close(kRed, one.session));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant three, Open({.max_tokens = 1}, lower));
  SY_ASSERT_OK(WatchEnds(WatchAs(kRed, three), lower));
  cluster.Advance(seconds(61), milliseconds(200));
  EXPECT_THAT(WatchEnds(WatchAs(kRed, one), lower), kFull);
}

// An engine whose gateway is gone goes on through another one at once, and not a minute later.
TEST_F(TenantsTest, TheSessionOfAGatewayThatIsGoneLeavesRoomForTheNext) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .sessions_max = 1});
  const auto through = [&](const std::string& gateway) {
    return Open({.caller = gateway, .deployment = "demo", .on_behalf_of = kRed}, red);
  };
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant first, through("spiffe://d/w0"));
  const WatchId watch = cluster.Watch(WatchAs("spiffe://d/w0", first), nullptr);
  EXPECT_THAT(through("spiffe://d/w1"), kFull);

  cluster.Step(WatchStopped{watch});

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant second, through("spiffe://d/w1"));
  // The first gateway was only out of reach: its session goes on and counts again.
  const WatchId again = cluster.Watch(WatchAs("spiffe://d/w0", first), nullptr);
  EXPECT_EQ(cluster.closed_watches.count(again), 0U);
  SY_ASSERT_OK(Close("spiffe://d/w1", second.session));
  EXPECT_THAT(through("spiffe://d/w1"), kFull);
  SY_ASSERT_OK(Close("spiffe://d/w0", first.session));
  SY_EXPECT_OK(through("spiffe://d/w1").status());
}

// An engine that attaches by itself keeps its attachments when its watch ends.
TEST_F(TenantsTest, AnEnginesOwnSessionCountsWithoutItsWatch) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .sessions_max = 1});
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, Open({.deployment = "demo"}, red));
  cluster.Step(WatchStopped{cluster.Watch(WatchAs(kRed, grant), red)});

  EXPECT_THAT(Open({.deployment = "demo"}, red), kFull);
}

// The plan that serves is still of the model before, which is not theirs.
TEST_F(TenantsTest, ADeploymentThatChangesToTheirModelIsTheirsOnceItServes) {
  const TenantRef red = Of({.name = "red", .ids = {kRed}, .models = {"n"}});
  for (const char* id : {"w0", "w1"}) cluster.worker(id).prepares = Answers::kNothing;
  SY_ASSERT_OK(cluster.Apply(Spec("demo", "n")).status());
  ASSERT_EQ(cluster.Deployment().spec.model, "n");
  EXPECT_THAT(Open({.deployment = "demo"}, red),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
}

}  // namespace
}  // namespace switchyard
