// Round trips: what ToProto writes, FromProto reads back equal, also through the wire's bytes.
#include <string>

#include "gtest/gtest.h"

#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/plan.h"
#include "services/convert/session.h"
#include "services/convert/step.h"
#include "tests/services/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::RandomMessages;

constexpr std::uint64_t kSeed = 20261121;
constexpr int kRounds = 300;

template <typename Proto>
Proto ThroughBytes(const Proto& proto) {
  Proto out;
  EXPECT_TRUE(out.ParseFromString(proto.SerializeAsString()));
  return out;
}

template <typename Make>
void ExpectRoundTrips(Make make) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const auto message = make(random);

    const auto back = FromProto(ThroughBytes(ToProto(message)));

    ASSERT_THAT(back, testing::IsOk()) << "seed " << kSeed << " round " << round;
    ASSERT_TRUE(*back == message) << "seed " << kSeed << " round " << round;
  }
}

TEST(ConvertTest, WorkerMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.FromWorker(); });
}

TEST(ConvertTest, CoordinatorMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.FromCoordinator(); });
}

TEST(ConvertTest, PlansKeepTheirHash) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const PlanNews news = random.News();

    SY_ASSERT_OK_AND_ASSIGN(const PlanNews back, FromProto(ThroughBytes(ToProto(news))));

    ASSERT_EQ(HashOf(back.plan), HashOf(news.plan)) << "round " << round;
    ASSERT_EQ(back, news) << "round " << round;
  }
}

TEST(ConvertTest, SessionMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.Order(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.Grant(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.Watch(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.rng().NextId<SessionId>(); });
}

TEST(ConvertTest, AttachMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) -> AttachMessage {
    switch (random.rng().Below(3)) {
      case 0:
        return random.Attach();
      case 1:
        return BindOrder{Epoch{random.rng().Next()}, random.Digest()};
      default:
        return ReleaseOrder{Epoch{random.rng().Next()}};
    }
  });
  ExpectRoundTrips([](RandomMessages& random) -> AttachAnswer {
    switch (random.rng().Below(3)) {
      case 0:
        return AttachGrant{random.Ring(), random.Text()};
      case 1:
        return BindAnswer{Epoch{random.rng().Next()}, absl::OkStatus()};
      default:
        return BindAnswer{Epoch{random.rng().Next()}, random.Error()};
    }
  });
}

TEST(ConvertTest, CountersRoundTrip) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const AttachmentCounters counters = random.Counters();
    v1::AttachmentCounters proto;
    Encode(counters, &proto);

    AttachmentCounters back;
    Decoder at("AttachmentCounters");
    Decode(at, ThroughBytes(proto), &back);

    SY_ASSERT_OK(at.status());
    ASSERT_EQ(back, counters) << "round " << round;
  }
}

TEST(ConvertTest, ForwardedStepsRoundTrip) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t tokens = random.rng().Below(5);
    const std::string x = random.Bytes(64);
    std::vector<std::int32_t> ids(tokens * 3);
    std::vector<float> weights(tokens * 3);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.rng().Below(9)) - 1;
    for (float& weight : weights) weight = static_cast<float>(random.rng().Uniform());
    const GatewayStep step{.step = StepId{random.rng().Next()},
                           .layer = LayerId{random.Index()},
                           .tokens = static_cast<std::int32_t>(tokens),
                           .x = std::as_bytes(std::span(x)),
                           .ids = ids,
                           .weights = weights};
    const v1::ForwardRequest proto = ThroughBytes(ForwardStep(step));

    SY_ASSERT_OK_AND_ASSIGN(const ForwardMessage message, FromProto(proto));

    const GatewayStep& back = std::get<ReceivedStep>(message).step;
    EXPECT_EQ(back.step, step.step);
    EXPECT_EQ(back.layer, step.layer);
    EXPECT_EQ(back.tokens, step.tokens);
    EXPECT_TRUE(std::ranges::equal(back.x, step.x));
    EXPECT_TRUE(std::ranges::equal(back.ids, step.ids));
    EXPECT_TRUE(std::ranges::equal(back.weights, step.weights));
  }
}

TEST(ConvertTest, ForwardOpenAndAnswersRoundTrip) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const OpenSessionOrder order = random.Order();
    const v1::ForwardRequest open = ThroughBytes(ForwardOpen(order));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardMessage opened, FromProto(open));
    EXPECT_EQ(std::get<OpenSessionOrder>(opened), order);

    GatewayGrant grant{random.Grant(), 7, random.Text()};
    const v1::ForwardResponse granted = ThroughBytes(ForwardOpened(grant));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardAnswer grant_back, FromProto(granted));
    grant.grant.cookie = Cookie{};  // It never leaves the gateway.
    EXPECT_EQ(std::get<GatewayGrant>(grant_back).grant, grant.grant);
    EXPECT_EQ(std::get<GatewayGrant>(grant_back).credits, 7U);
    EXPECT_EQ(std::get<GatewayGrant>(grant_back).worker_id, grant.worker_id);

    const std::string y = random.Bytes(64);
    const absl::Status error = random.rng().Below(2) == 0 ? absl::OkStatus() : random.Error();
    const v1::ForwardResponse result =
        ThroughBytes(ForwardResult({StepId{9}, error, std::as_bytes(std::span(y))}));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardAnswer answer, FromProto(result));
    EXPECT_EQ(std::get<StepAnswer>(answer).step, StepId{9});
    EXPECT_EQ(std::get<StepAnswer>(answer).status, error);
    EXPECT_EQ(std::get<StepAnswer>(answer).y.size(), error.ok() ? y.size() : 0);
  }
}

TEST(ConvertTest, AnOrderThatNamesNothingGetsTheDocumentedDefaults) {
  v1::OpenSessionRequest proto;
  proto.mutable_order();

  SY_ASSERT_OK_AND_ASSIGN(const OpenSessionOrder order, FromProto(proto));

  EXPECT_EQ(order, OpenSessionOrder{});
  EXPECT_EQ(order.phase, Phase::kMixed);
  EXPECT_EQ(order.y_dtype, OutputDtype::kF32);
  EXPECT_EQ(order.mode, std::nullopt);
}

}  // namespace
}  // namespace switchyard
