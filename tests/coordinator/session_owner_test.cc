// Whose a session is, where the callers are known: to anybody else it does not exist.
#include <string>

#include "gtest/gtest.h"

#include "core/grant_signature.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr char kA[] = "spiffe://d/a";
constexpr char kB[] = "spiffe://d/b";
constexpr SessionId kNever{0xabcd, 0xef01};
const auto kUnknown = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession);

std::string Without(std::string text, SessionId session) {
  const std::string id = ToHex(session);
  for (auto at = text.find(id); at != std::string::npos; at = text.find(id)) {
    text.replace(at, id.size(), "ID");
  }
  return text;
}

class SessionOwnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(testing::MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  SessionGrant OpenAs(const std::string& caller) {
    OpenSessionRequest order;
    order.phase = Phase::kDecode;
    order.caller = caller;
    auto grant = cluster.Open(order);
    SY_EXPECT_OK(grant.status());
    return grant.ok() ? *grant : SessionGrant();
  }
  // As a source of this release watches.
  static WatchRequest WatchAs(const std::string& caller, const SessionGrant& grant) {
    const GrantClaims claims = ClaimsOf(grant);
    WatchRequest request{grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};
    request.cookie = claims.cookie;
    request.mode = claims.mode;
    request.max_tokens = claims.max_tokens;
    request.record_amax = claims.record_amax;
    request.signature = grant.signature;
    request.caller = caller;
    return request;
  }
  // As one of a former release does.
  static WatchRequest WordOf(const std::string& caller, const SessionGrant& grant) {
    WatchRequest request = WatchAs(caller, grant);
    request.signature = {};
    return request;
  }
  absl::Status WatchEnds(const WatchRequest& request) {
    const WatchId watch = cluster.Watch(request);
    const auto closed = cluster.closed_watches.find(watch);
    return closed == cluster.closed_watches.end() ? absl::OkStatus() : closed->second;
  }
  absl::Status CloseAs(const std::string& caller, SessionId session) {
    cluster.closed_session = absl::InternalError("no answer");
    cluster.Step(SessionEnded{RequestId{1000}, session, caller});
    return cluster.closed_session;
  }
  void Restart() {
    cluster.StopCoordinator();
    cluster.StartCoordinator();
    for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
    cluster.Advance(milliseconds(200));
    ASSERT_EQ(cluster.Serving(), 1U);
  }

  Cluster cluster;
};

TEST_F(SessionOwnerTest, NobodyElseClosesIt) {
  const SessionGrant grant = OpenAs(kA);

  const absl::Status other = CloseAs(kB, grant.session);
  EXPECT_THAT(other, kUnknown);
  EXPECT_EQ(cluster.Deployment().sessions, 1);
  const absl::Status never = CloseAs(kB, kNever);
  EXPECT_EQ(Without(std::string(other.message()), grant.session),
            Without(std::string(never.message()), kNever));
  EXPECT_EQ(never.code(), other.code());

  SY_EXPECT_OK(CloseAs(kA, grant.session));
  EXPECT_EQ(cluster.Deployment().sessions, 0);
  EXPECT_THAT(CloseAs(kA, grant.session), kUnknown);
}

TEST_F(SessionOwnerTest, NobodyElseWatchesItOrEndsItsWatch) {
  const SessionGrant grant = OpenAs(kA);
  const WatchId watch = cluster.Watch(WatchAs(kA, grant));

  const absl::Status with_grant = WatchEnds(WatchAs(kB, grant));
  EXPECT_THAT(with_grant, kUnknown);
  EXPECT_THAT(WatchEnds(WordOf(kB, grant)), kUnknown);
  SessionGrant never = grant;
  never.session = kNever;
  const absl::Status none = WatchEnds(WatchAs(kB, never));
  EXPECT_EQ(Without(std::string(with_grant.message()), grant.session),
            Without(std::string(none.message()), kNever));
  EXPECT_EQ(none.code(), with_grant.code());
  // Nor does a wrong phase or plan tell anything.
  WatchRequest wrong = WatchAs(kB, grant);
  wrong.phase = Phase::kPrefill;
  EXPECT_THAT(WatchEnds(wrong), kUnknown);
  wrong.hash = {};
  EXPECT_THAT(WatchEnds(wrong), kUnknown);

  EXPECT_FALSE(cluster.closed_watches.contains(watch));
}

TEST_F(SessionOwnerTest, WithoutCallersWhoeverKnowsTheIdHasIt) {
  const SessionGrant grant = OpenAs("");

  SY_EXPECT_OK(WatchEnds(WordOf("", grant)));
  SY_EXPECT_OK(CloseAs("", grant.session));
  SY_EXPECT_OK(CloseAs("", grant.session));
}

TEST_F(SessionOwnerTest, TheGrantNamesTheOpenerOnceEveryWorkerCanTell) {
  const SessionGrant bound = OpenAs(kA);
  const GrantKeys keys = cluster.worker("w0").Got<Prepare>().back().grant_keys;
  EXPECT_TRUE(VerifyGrantOf(kA, keys, ClaimsOf(bound), bound.signature));
  EXPECT_FALSE(VerifyGrantOf(kB, keys, ClaimsOf(bound), bound.signature));
  EXPECT_FALSE(VerifyGrantOf("", keys, ClaimsOf(bound), bound.signature));
  EXPECT_EQ(bound.request.caller, "") << "nothing for the wire";

  // A worker of a release that knows no openers, which would refuse the session.
  cluster.worker("w1").checks_opener = false;
  cluster.BreakStream("w1");
  cluster.Register(cluster.worker("w1"));
  const SessionGrant open = OpenAs(kA);
  EXPECT_TRUE(VerifyGrant(keys, ClaimsOf(open), open.signature));
  EXPECT_THAT(CloseAs(kB, open.session), kUnknown) << "the coordinator still tells them apart";
}

TEST_F(SessionOwnerTest, ARestartedCoordinatorBelievesAGrantFromItsOpenerOnly) {
  const SessionGrant grant = OpenAs(kA);
  Restart();

  EXPECT_THAT(WatchEnds(WatchAs(kB, grant)), kUnknown);
  SY_EXPECT_OK(WatchEnds(WatchAs(kA, grant)));
  EXPECT_THAT(WatchEnds(WordOf(kB, grant)), kUnknown);
  EXPECT_THAT(CloseAs(kB, grant.session), kUnknown);
  SY_EXPECT_OK(CloseAs(kA, grant.session));
}

// Also long after its start: the source was cut off, and its session forgotten.
TEST_F(SessionOwnerTest, AGrantIsBelievedAtAnyTime) {
  const SessionGrant grant = OpenAs(kA);
  cluster.Advance(seconds(70), seconds(1));
  ASSERT_EQ(cluster.Deployment().sessions, 0);

  EXPECT_THAT(WatchEnds(WordOf(kA, grant)), kUnknown);
  SY_EXPECT_OK(WatchEnds(WatchAs(kA, grant)));
}

// A source of a former release has only its word, and only for as long as it would take to dial. A
// grant counts more.
TEST_F(SessionOwnerTest, AWordIsBelievedUntilAGrantComes) {
  const SessionGrant grant = OpenAs(kA);
  Restart();

  SY_EXPECT_OK(WatchEnds(WordOf(kB, grant)));
  EXPECT_THAT(WatchEnds(WordOf(kA, grant)), kUnknown);
  SY_EXPECT_OK(WatchEnds(WatchAs(kA, grant)));
  EXPECT_THAT(WatchEnds(WordOf(kB, grant)), kUnknown);
  EXPECT_THAT(CloseAs(kB, grant.session), kUnknown);

  Restart();
  cluster.Advance(seconds(70), seconds(1));
  EXPECT_THAT(WatchEnds(WordOf(kA, grant)), kUnknown);
}

// Whoever claimed the session cannot lock its opener out by naming something else.
TEST_F(SessionOwnerTest, NothingOfAWrongWordStays) {
  const SessionGrant grant = OpenAs(kA);
  Restart();
  WatchRequest word = WordOf(kB, grant);
  word.phase = Phase::kPrefill;
  const WatchId claimed = cluster.Watch(word);
  ASSERT_FALSE(cluster.closed_watches.contains(claimed));

  SY_EXPECT_OK(WatchEnds(WatchAs(kA, grant)));
  ASSERT_TRUE(cluster.closed_watches.contains(claimed));
  EXPECT_THAT(cluster.closed_watches.at(claimed), kUnknown);
  SY_EXPECT_OK(CloseAs(kA, grant.session));
}

TEST_F(SessionOwnerTest, AGrantThatWasChangedProvesNothing) {
  const SessionGrant grant = OpenAs(kA);
  Restart();

  WatchRequest changed = WatchAs(kA, grant);
  changed.cookie.value ^= 1;
  EXPECT_THAT(WatchEnds(changed), kUnknown);
  changed = WatchAs(kA, grant);
  changed.signature.bytes[7] ^= 1;
  EXPECT_THAT(WatchEnds(changed), kUnknown);
}

// The proof of an opener whose plan is gone is answered like before.
TEST_F(SessionOwnerTest, TheOpenerHearsThatItsPlanIsGone) {
  const SessionGrant grant = OpenAs(kA);
  Restart();
  WatchRequest stale = WatchAs(kA, grant);
  stale.epoch = Epoch{77};

  EXPECT_THAT(WatchEnds(stale),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  stale.caller = kB;
  EXPECT_THAT(WatchEnds(stale), kUnknown);
}

}  // namespace
}  // namespace switchyard
