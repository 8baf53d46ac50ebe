#include "services/convert/plan.h"

#include <functional>

#include "gtest/gtest.h"

#include "services/convert/control.h"
#include "services/convert/session.h"
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

v1::SessionResponse APrepare() {
  RandomMessages random(6);
  Prepare message{9, random.APlan(), random.Digest(), "/models/m", {random.Tensor()}};
  message.plan.workers = {random.Worker(), random.Worker()};
  message.plan.layers = {random.Layer()};
  message.plan.layers[0].experts = {{ExpertId{1}, WorkerOrdinal{0}, SlotId{0}}};
  message.plan.configs = {random.Config(), random.Config(), random.Config()};
  return ToProto(CoordinatorMessage(message));
}

TEST(ConvertPlanTest, PlansKeepTheirHash) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const PlanUpdate news = random.News();

    SY_ASSERT_OK_AND_ASSIGN(const PlanUpdate back, FromProto(ThroughBytes(ToProto(news))));

    ASSERT_EQ(HashOf(back.plan), HashOf(news.plan)) << "round " << round;
    ASSERT_EQ(back, news) << "round " << round;
  }
}

TEST(ConvertPlanTest, NamesThePathOfTheFieldInPrepare) {
  const std::vector<std::pair<std::string, std::function<void(v1::Prepare*)>>> cases = {
      {"SessionResponse.prepare.plan", [](auto* m) { m->clear_plan(); }},
      {"SessionResponse.prepare.grant_keys", [](auto* m) { m->clear_grant_keys(); }},
      {"SessionResponse.prepare.plan_hash",
       [](auto* m) { m->set_plan_hash(std::string(31, 'x')); }},
      {"SessionResponse.prepare.plan.shape", [](auto* m) { m->mutable_plan()->clear_shape(); }},
      {"SessionResponse.prepare.plan.manifest_hash",
       [](auto* m) { m->mutable_plan()->set_manifest_hash(std::string(33, 'x')); }},
      {"SessionResponse.prepare.plan.shape.hidden",
       [](auto* m) { m->mutable_plan()->mutable_shape()->set_hidden(~0U); }},
      {"SessionResponse.prepare.plan.workers[1].device",
       [](auto* m) { m->mutable_plan()->mutable_workers(1)->clear_device(); }},
      {"SessionResponse.prepare.plan.layers[0].experts[0].slot",
       [](auto* m) { m->mutable_plan()->mutable_layers(0)->mutable_experts(0)->set_slot(~0U); }},
      {"SessionResponse.prepare.plan.configs[2].edge",
       [](auto* m) { m->mutable_plan()->mutable_configs(2)->clear_edge(); }},
      {"SessionResponse.prepare.plan.configs[2].edge.worker",
       [](auto* m) { m->mutable_plan()->mutable_configs(2)->mutable_edge()->clear_worker(); }},
      {"SessionResponse.prepare.plan.configs[0].mode",
       [](auto* m) { m->mutable_plan()->mutable_configs(0)->clear_mode(); }},
      {"SessionResponse.prepare.tensors[0].projection",
       [](auto* m) { m->mutable_tensors(0)->set_projection(static_cast<v1::Projection>(-1)); }},
      {"SessionResponse.prepare.tensors[0].sha256",
       [](auto* m) { m->mutable_tensors(0)->clear_sha256(); }},
  };
  for (const auto& [field, damage] : cases) {
    v1::SessionResponse proto = APrepare();
    SY_ASSERT_OK(FromProto(proto));

    damage(proto.mutable_prepare());

    ExpectRefuses(FromProto(proto), field);
  }
}

}  // namespace
}  // namespace switchyard
