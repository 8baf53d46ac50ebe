#include "services/convert/step.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;
using testing::kRounds;
using testing::kSeed;
using testing::RandomMessages;
using testing::ThroughBytes;

TEST(ConvertStepTest, ForwardedStepsRoundTrip) {
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
                           .weights = weights,
                           .deadline = random.Time()};
    const v1::ForwardRequest proto = ThroughBytes(ForwardStep(step));

    SY_ASSERT_OK_AND_ASSIGN(const ForwardMessage message, FromProto(proto));

    const GatewayStep& back = std::get<ReceivedStep>(message).step;
    EXPECT_EQ(back.step, step.step);
    EXPECT_EQ(back.layer, step.layer);
    EXPECT_EQ(back.tokens, step.tokens);
    EXPECT_TRUE(std::ranges::equal(back.x, step.x));
    EXPECT_TRUE(std::ranges::equal(back.ids, step.ids));
    EXPECT_TRUE(std::ranges::equal(back.weights, step.weights));
    EXPECT_EQ(back.deadline, step.deadline);
  }
}

TEST(ConvertStepTest, ForwardOpenAndAnswersRoundTrip) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const OpenSessionRequest order = random.Order();
    const v1::ForwardRequest open = ThroughBytes(ForwardOpen(order));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardMessage opened, FromProto(open));
    EXPECT_EQ(std::get<OpenSessionRequest>(opened), order);

    GatewayGrant grant{random.Grant(), 7, random.Text()};
    const v1::ForwardResponse granted = ThroughBytes(ForwardOpened(grant));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardAnswer grant_back, FromProto(granted));
    grant.grant.cookie = Cookie{};  // Neither ever leaves the gateway.
    grant.grant.signature = {};
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

    GatewayNews news;
    news.leaving = random.rng().Below(2) == 0;
    if (random.rng().Below(2) == 0) {
      news.plan.emplace();
      news.plan->plan = grant.grant.plan;
      news.plan->hash = grant.grant.hash;
    }
    const v1::ForwardResponse told = ThroughBytes(ForwardNews(news));
    SY_ASSERT_OK_AND_ASSIGN(const ForwardAnswer heard, FromProto(told));
    EXPECT_EQ(std::get<GatewayNews>(heard).leaving, news.leaving);
    EXPECT_EQ(std::get<GatewayNews>(heard).plan, news.plan);
  }
}

TEST(ConvertStepTest, StepsWhoseTablesDoNotFitAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(v1::ForwardStep*)>>> cases = {
      {"ForwardRequest.step.ids", [](auto* m) { m->set_ids(std::string(15, '\1')); }},
      {"ForwardRequest.step.weights", [](auto* m) { m->set_weights(std::string(8, '\1')); }},
      {"ForwardRequest.step.weights", [](auto* m) { m->set_weights(std::string(32, '\1')); }},
      {"ForwardRequest.step.tokens", [](auto* m) { m->set_tokens(~0U); }},
      {"ForwardRequest.step.ids", [](auto* m) { m->set_tokens(0); }},
      {"ForwardRequest.step.layer", [](auto* m) { m->set_layer(~0U); }},
      {"ForwardRequest.step.deadline", [](auto* m) { m->mutable_deadline()->set_seconds(-1); }},
  };
  const std::vector<std::int32_t> ids{1, 2, 3, -1};
  const std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.0F};
  for (const auto& [field, damage] : cases) {
    v1::ForwardRequest proto = ForwardStep({StepId{1}, LayerId{3}, 2, {}, ids, weights});
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_step());

    ExpectRefuses(FromProto(proto), field);
  }
}

// R63: x is BF16 by definition. Nothing in the messages of steps and sessions can say anything
// else, so that FP16 cannot be asked for; bytes of another width are refused as BAD_SHAPE.
TEST(ConvertStepTest, NoMessageCanNameFp16Rows) {
  const google::protobuf::Descriptor& step = *v1::ForwardStep::descriptor();
  for (int i = 0; i < step.field_count(); ++i) {
    EXPECT_EQ(step.field(i)->enum_type(), nullptr) << step.field(i)->full_name();
  }
  for (const auto* dtypes : {v1::OutputDtype_descriptor(), v1::DispatchDtype_descriptor()}) {
    int bf16 = 0;
    for (int i = 0; i < dtypes->value_count(); ++i) {
      const std::string& name = dtypes->value(i)->name();
      const bool is_bf16 = absl::EndsWith(name, "_BF16");
      bf16 += is_bf16 ? 1 : 0;
      EXPECT_TRUE(is_bf16 || !absl::StrContains(name, "16")) << name;
    }
    EXPECT_EQ(bf16, 1) << dtypes->full_name();
  }
}

TEST(ConvertStepTest, AGrantWithoutCreditsIsRefused) {
  RandomMessages random(8);
  v1::ForwardResponse proto = ForwardOpened({random.Grant(), 0, "w0"});

  ExpectRefuses(FromProto(proto), "ForwardResponse.opened.credits");
}

}  // namespace
}  // namespace switchyard
