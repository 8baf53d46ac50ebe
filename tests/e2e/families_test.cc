// A checkpoint of every model family through the whole system: coordinator, workers and client in
// one process, under the family's own config.json and tensor names, against the double reference.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "harness/in_process_deployment.h"
#include "tests/e2e/random_step.h"
#include "tests/model/family_checkpoints.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::FailsWith;
using testing::FamilyCheckpoint;
using testing::RandomExpert;
using testing::RandomStep;
using testing::RunStep;

constexpr std::int32_t kTokens = 33;
constexpr double kBf16Max = 1.5e-5;

std::vector<double> ReferenceOf(const FamilyCheckpoint& family, LayerId layer,
                                const RandomStep& step) {
  std::vector<RandomExpert> experts;
  for (std::int32_t e = 0; e < family.shape.experts; ++e) {
    experts.push_back(family.Expert(layer, e));
  }
  std::vector<ExpertWeightsView> views;
  for (const RandomExpert& expert : experts) views.push_back(expert.view());
  return testing::ReferenceMoeLayer(family.shape, views, {step.x, step.ids, step.weights});
}

class FamiliesTest : public ::testing::TestWithParam<FamilyCheckpoint> {
 protected:
  void SetUp() override {
    WriteFamily(GetParam(), folder_);
    InProcessOptions options;
    options.checkpoint = folder_.path();
    options.workers = 2;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(DispatchMode mode) {
    OpenSessionRequest order;
    order.mode = mode;
    return client_->OpenWhenReady(order, std::chrono::seconds(20));
  }

  testing::TempDir folder_;
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;  // goes before the deployment
};

TEST_P(FamiliesTest, EveryLayerWithExpertsAnswersAsTheReference) {
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SCOPED_TRACE(std::string(DispatchModeName(mode)));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(mode));
    SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, (*session).Grant());
    EXPECT_EQ(grant.plan.shape, GetParam().shape);
    ASSERT_EQ(grant.plan.layers.size(), GetParam().moe_layers.size());
    for (std::size_t i = 0; i < GetParam().moe_layers.size(); ++i) {
      const LayerId layer = GetParam().moe_layers[i].layer;
      EXPECT_EQ(grant.plan.layers[i].layer, layer);
      RandomStep step(GetParam().shape, kTokens, 40 + static_cast<std::uint64_t>(layer.value));

      SY_ASSERT_OK(RunStep(*session, step, layer));

      EXPECT_LE(CalcDiff(step.y, ReferenceOf(GetParam(), layer, step)), kBf16Max)
          << "layer " << layer.value;
    }
  }
}

// Dense layers are the engine's; the one past the last is nobody's.
TEST_P(FamiliesTest, OtherLayersAreRefusedByNumber) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kNormal));
  std::vector<LayerId> others{LayerId{GetParam().layers + GetParam().drafts}};
  for (std::int32_t layer = 0; layer < GetParam().moe_layers.front().layer.value; ++layer) {
    others.push_back(LayerId{layer});
  }
  for (const LayerId layer : others) {
    RandomStep step(GetParam().shape, 2, 3);

    const absl::Status status = RunStep(*session, step, layer);

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
    EXPECT_EQ(MetadataOf(status).at("layer"), std::to_string(layer.value)) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, FamiliesTest,
                         ::testing::ValuesIn(testing::FamilyCheckpoints()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace switchyard
