// Sessions and watches, as sources ask for them.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "coordinator/session_request.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeSpec;

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    DeploymentSpec spec = MakeSpec(2);
    spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};
    SY_ASSERT_OK(cluster.Apply(spec));
    ASSERT_EQ(cluster.Serving(), 1U);
    order.model = "m";
    order.phase = Phase::kDecode;
  }
  WatchRequest WatchOf(const SessionGrant& grant) const {
    return {grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};
  }
  void MakeNextEpoch(const std::string& id) {
    cluster.Join(id);
    cluster.Advance(milliseconds(200));
  }
  Cluster cluster;
  OpenSessionRequest order;
};

TEST_F(SessionTest, GrantsWithDefaultsFilledIn) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  EXPECT_FALSE(grant.session.empty());
  EXPECT_NE(grant.cookie.value, 0U);
  EXPECT_EQ(grant.request.deployment, "demo");
  EXPECT_EQ(grant.request.mode, DispatchMode::kLowLatency);
  EXPECT_EQ(grant.request.max_tokens, 512);
  EXPECT_EQ(grant.request.step_deadline, seconds(1));
  EXPECT_EQ(grant.hash, HashOf(grant.plan));
  EXPECT_EQ(grant.plan.epoch, Epoch{1});
}

TEST_F(SessionTest, PrefillIsNormalWithALongDeadline) {
  order.phase = Phase::kPrefill;

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  EXPECT_EQ(grant.request.mode, DispatchMode::kNormal);
  EXPECT_EQ(grant.request.max_tokens, kDefaultNormalTokens);
  EXPECT_EQ(grant.request.step_deadline, seconds(60));
}

// Who knows a session's cookie can send frames in its name, and who has the key can make grants.
TEST_F(SessionTest, LogsTheSessionWithoutItsSecrets) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  std::string all;
  for (const Report& report : cluster.reports) {
    absl::StrAppend(&all, TextLine({"debug", "coordinator", report.text, report.fields}), "\n");
  }
  EXPECT_THAT(all, ::testing::HasSubstr(ToHex(grant.session)));
  EXPECT_EQ(all.find(absl::StrCat(grant.cookie.value)), std::string::npos);
  EXPECT_EQ(all.find(absl::StrCat(absl::Hex(grant.cookie.value))), std::string::npos);
  const Prepare prepare = cluster.worker("w0").Got<Prepare>().back();
  for (const GrantKey& key : prepare.grant_keys) {
    EXPECT_EQ(all.find(absl::BytesToHexString(absl::string_view(
                  reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()))),
              std::string::npos);
  }
}

TEST_F(SessionTest, NoTwoSessionsShareIdOrCookie) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant a, cluster.Open(order));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant b, cluster.Open(order));
  EXPECT_NE(a.session, b.session);
  EXPECT_NE(a.cookie, b.cookie);
}

// Every worker of the plan can check the grant, and nobody else can make one.
TEST_F(SessionTest, SignsTheGrantWithTheKeyThatPrepareGaveToWorkers) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  for (const char* id : {"w0", "w1"}) {
    const Prepare prepare = cluster.worker(id).Got<Prepare>().back();
    ASSERT_EQ(prepare.grant_keys.size(), 1U) << id;
    EXPECT_FALSE(prepare.grant_keys[0].empty()) << id;
    EXPECT_TRUE(VerifyGrant(prepare.grant_keys, ClaimsOf(grant), grant.signature)) << id;
    EXPECT_EQ(prepare.hash, HashOf(prepare.plan)) << "which does not cover the keys";
  }
}

// A session outlives its epoch, and attaches to a worker that joined later.
TEST_F(SessionTest, TheKeyStaysWhenTheEpochAndTheDeploymentChange) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  MakeNextEpoch("w2");
  DeploymentSpec spec = MakeSpec(2);
  spec.max_tokens_per_step = 77;
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(milliseconds(200));

  const std::vector<Prepare> prepares = cluster.worker("w2").Got<Prepare>();
  ASSERT_EQ(prepares.size(), 2U);
  for (const Prepare& prepare : prepares) {
    EXPECT_TRUE(VerifyGrant(prepare.grant_keys, ClaimsOf(grant), grant.signature));
  }
}

TEST_F(SessionTest, EveryDeploymentHasAKeyOfItsOwn) {
  DeploymentSpec other = MakeSpec(2);
  other.name = "other";
  SY_ASSERT_OK(cluster.Apply(other));
  cluster.Advance(milliseconds(200));
  order.deployment = "demo";
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  const Prepare prepare = cluster.worker("w0").Got<Prepare>().back();

  ASSERT_EQ(prepare.plan.deployment, "other");
  GrantClaims claims = ClaimsOf(grant);
  claims.deployment = "other";
  EXPECT_FALSE(VerifyGrant(prepare.grant_keys, claims, grant.signature));
  EXPECT_FALSE(VerifyGrant(prepare.grant_keys, ClaimsOf(grant), grant.signature));
}

TEST_F(SessionTest, KeepsWhatWasAskedFor) {
  order.mode = DispatchMode::kNormal;
  order.max_tokens = 77;
  order.step_deadline = milliseconds(250);
  order.strict = true;
  order.y_dtype = OutputDtype::kBf16;

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));

  order.deployment = "demo";
  order.binding = BindingChoice::kP2p;  // what auto is without a group
  EXPECT_EQ(grant.request, order);
}

TEST_F(SessionTest, RefusesWhatCannotBe) {
  struct Case {
    absl::StatusCode code;
    Reason reason;
    void (*spoil)(OpenSessionRequest&);
  };
  const Case cases[] = {
      {absl::StatusCode::kNotFound, Reason::kUnknownModel,
       [](OpenSessionRequest& o) { o.model = "unknown"; }},
      {absl::StatusCode::kNotFound, Reason::kUnknownModel,
       [](OpenSessionRequest& o) { o.deployment = "unknown"; }},
      {absl::StatusCode::kNotFound, Reason::kUnknownModel,
       [](OpenSessionRequest& o) { o.deployment = "demo", o.model = "another"; }},
      {absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
       [](OpenSessionRequest& o) { o.phase = Phase::kMixed; }},
      {absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
       [](OpenSessionRequest& o) { o.max_tokens = 513; }},
      {absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
       [](OpenSessionRequest& o) { o.max_tokens = -1; }},
      {absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
       [](OpenSessionRequest& o) { o.mode = DispatchMode::kNormal, o.max_tokens = 2 << 20; }},
      {absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
       [](OpenSessionRequest& o) { o.step_deadline = seconds(-1); }},
      {absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
       [](OpenSessionRequest& o) { o.step_deadline = std::chrono::hours(25); }},
      {absl::StatusCode::kUnimplemented, Reason::kUnsupported,
       [](OpenSessionRequest& o) { o.source = DeviceKind::kAscend; }},
  };
  for (const Case& c : cases) {
    OpenSessionRequest bad = order;
    c.spoil(bad);
    EXPECT_THAT(cluster.Open(bad), FailsWith(c.code, c.reason)) << &c - cases;
  }
}

TEST_F(SessionTest, AsksForTheDeploymentWhenSeveralServeTheModel) {
  DeploymentSpec second = MakeSpec(2);
  second.name = "second";
  SY_ASSERT_OK(cluster.Apply(second));

  const auto ambiguous = cluster.Open(order);
  order.deployment = "second";

  ASSERT_THAT(ambiguous, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_NE(ambiguous.status().message().find(
                "several deployments serve model m; name one of: demo, second"),
            absl::string_view::npos);
  SY_EXPECT_OK(cluster.Open(order));
}

TEST_F(SessionTest, BoundsTheNumberOfSessions) {
  CoordinatorOptions options;
  options.max_sessions = 2;
  Cluster small(options);
  small.Join("w0");
  SY_ASSERT_OK(small.Apply(MakeSpec()));
  SY_ASSERT_OK(small.OpenDecode());
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, small.OpenDecode());

  EXPECT_THAT(small.OpenDecode(),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));

  small.Step(SessionEnded{RequestId{1}, grant.session});
  SY_EXPECT_OK(small.OpenDecode());
}

TEST_F(SessionTest, ForgetsSessionsThatNobodyWatches) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant watched, cluster.Open(order));
  SY_ASSERT_OK(cluster.Open(order));
  const WatchId watch = cluster.Watch(WatchOf(watched));
  EXPECT_EQ(cluster.Deployment().sessions, 2);

  cluster.Advance(seconds(61));
  EXPECT_EQ(cluster.Deployment().sessions, 1);

  cluster.Step(WatchStopped{watch});
  cluster.Advance(seconds(59));
  EXPECT_EQ(cluster.Deployment().sessions, 1);
  cluster.Advance(seconds(2));
  EXPECT_EQ(cluster.Deployment().sessions, 0);
}

TEST_F(SessionTest, WatchesHearEachEpochOnce) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  const WatchId watch = cluster.Watch(WatchOf(grant));

  MakeNextEpoch("w2");
  MakeNextEpoch("w3");

  std::vector<std::uint64_t> heard;
  for (const PlanUpdate& news : cluster.news[watch]) {
    heard.push_back(news.plan.epoch.value);
    EXPECT_EQ(news.hash, HashOf(news.plan));
  }
  EXPECT_EQ(heard, (std::vector<std::uint64_t>{2, 3}));
}

// A source gives up a dead worker early, and lets one that leaves finish its steps.
TEST_F(SessionTest, NewsOfAPlanNameTheWorkersThatAreDeadAndNotThoseThatLeave) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  const WatchId watch = cluster.Watch(WatchOf(grant));
  const Incarnation dead = cluster.worker("w1").incarnation;
  MakeNextEpoch("w2");

  cluster.worker("w1").heartbeats = false;
  cluster.Advance(seconds(3));
  cluster.Say(cluster.worker("w0"), Leave{});
  cluster.Advance(milliseconds(200));

  const std::vector<PlanUpdate>& news = cluster.news[watch];
  ASSERT_EQ(news.size(), 3U);
  EXPECT_TRUE(news[0].lost.empty());
  EXPECT_EQ(news[1].lost, std::vector<Incarnation>{dead});
  EXPECT_EQ(news[2].plan.workers.size(), 1U);
  EXPECT_TRUE(news[2].lost.empty());
  EXPECT_EQ(news[1].hash, HashOf(news[1].plan));
  const WatchId again = cluster.Watch(WatchOf(grant));
  EXPECT_EQ(cluster.news[again].at(0), news[2]);
}

TEST_F(SessionTest, AWatchThatIsDialledAgainHearsWhatItMissed) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  cluster.Step(WatchStopped{cluster.Watch(WatchOf(grant))});
  MakeNextEpoch("w2");
  MakeNextEpoch("w3");
  MakeNextEpoch("w4");

  const WatchId again = cluster.Watch(WatchOf(grant));

  ASSERT_EQ(cluster.news[again].size(), 1U) << "the session is known, however old its plan";
  EXPECT_EQ(cluster.news[again][0].plan.epoch, Epoch{4});
}

TEST_F(SessionTest, AWatchThatNamesAnEpochOfTheFutureMissesNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  WatchRequest request = WatchOf(grant);
  request.epoch = Epoch{1000};
  const WatchId watch = cluster.Watch(request);

  MakeNextEpoch("w2");

  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
}

TEST_F(SessionTest, ANewerWatchReplacesTheOlder) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  const WatchId first = cluster.Watch(WatchOf(grant));
  const WatchId second = cluster.Watch(WatchOf(grant));
  cluster.Step(WatchStopped{first});
  MakeNextEpoch("w2");

  EXPECT_EQ(cluster.closed_watches[first].code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(cluster.news[first].empty());
  EXPECT_EQ(cluster.news[second].size(), 1U);
}

TEST_F(SessionTest, AWatchMustNameItsOwnSession) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  WatchRequest other = WatchOf(grant);
  other.phase = Phase::kPrefill;

  EXPECT_THAT(cluster.closed_watches[cluster.Watch(other)],
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(SessionTest, ClosingASessionEndsItsWatch) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.Open(order));
  const WatchId watch = cluster.Watch(WatchOf(grant));

  cluster.Step(SessionEnded{RequestId{1}, grant.session});
  cluster.Step(SessionEnded{RequestId{2}, grant.session});

  SY_EXPECT_OK(cluster.closed_watches.at(watch));
  EXPECT_EQ(cluster.Deployment().sessions, 0);
}

TEST(SessionViewTest, NamesWhoHasWhichSession) {
  Cluster cluster;
  cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(testing::MakeSpec(1)));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  cluster.Step(WatchStarted{WatchId{77},
                            {grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash},
                            "ipv4:10.0.0.1:5000"});
  cluster.Advance(seconds(2));

  ASSERT_EQ(cluster.Sessions().size(), 1U);
  SessionView view = cluster.Sessions()[0];
  EXPECT_EQ(view.name, ToHex(grant.session).substr(0, 8)) << "not the whole id";
  EXPECT_EQ(view.deployment, "demo");
  EXPECT_EQ(view.phase, Phase::kDecode);
  EXPECT_EQ(view.mode, DispatchMode::kLowLatency);
  EXPECT_EQ(view.source, DeviceKind::kCpu);
  EXPECT_EQ(view.peer, "ipv4:10.0.0.1:5000");
  EXPECT_EQ(view.epoch, Epoch{1});
  EXPECT_EQ(view.age, seconds(2));
  EXPECT_EQ(view.binding, BindingChoice::kP2p);
  EXPECT_EQ(view.binding_reason, "auto is p2p for a source that names no group");
  EXPECT_EQ(view.ranks, 0);

  // Another coordinator learns of it by its watch, which does not say how it was opened.
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  cluster.Register(cluster.worker("w0"));
  cluster.Step(WatchStarted{WatchId{78},
                            {grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash},
                            "ipv4:10.0.0.1:5001"});
  ASSERT_EQ(cluster.Sessions().size(), 1U);
  view = cluster.Sessions()[0];
  EXPECT_FALSE(view.mode.has_value());
  EXPECT_FALSE(view.source.has_value());
  EXPECT_FALSE(view.binding.has_value());
  EXPECT_EQ(view.peer, "ipv4:10.0.0.1:5001");
  cluster.Step(WatchStopped{WatchId{78}});
  EXPECT_EQ(cluster.Sessions()[0].peer, "");
}

TEST(SessionViewTest, SaysWhichPlaceOfWhichGroupASourceHas) {
  Cluster cluster;
  cluster.Join("w0");
  cluster.Join("w1");
  SY_ASSERT_OK(cluster.Apply(testing::MakeSpec(2)));
  cluster.Advance(seconds(5));
  OpenSessionRequest order;
  order.model = "m";
  order.phase = Phase::kDecode;
  order.max_tokens = 64;
  order.binding = BindingChoice::kCollective;
  order.group = {.name = "engine", .source = 1, .sources = 2};
  SY_ASSERT_OK(cluster.Open(order).status());

  ASSERT_EQ(cluster.Sessions().size(), 1U);
  const SessionView view = cluster.Sessions()[0];
  EXPECT_EQ(view.binding, BindingChoice::kCollective);
  EXPECT_EQ(view.binding_reason, "the source asked for it");
  EXPECT_EQ(view.group, order.group);
  EXPECT_EQ(view.ranks, 4) << "two workers and two sources";
}

}  // namespace
}  // namespace switchyard
