#include "services/convert/admin.h"

#include "gtest/gtest.h"

#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomMessages;

TEST(ConvertAdminTest, DeploymentSpecsRoundTrip) {
  RandomMessages random(17);
  for (int round = 0; round < 200; ++round) {
    DeploymentSpec spec{.name = random.Text(),
                        .model = random.Text(),
                        .checkpoint = random.Text(),
                        .phases = random.List([&random] {
                          PhaseSpec phase{random.Any(Phase::kMixed), std::nullopt};
                          if (random.rng().Below(2) == 0) {
                            phase.mode = random.Any(DispatchMode::kLowLatency);
                            phase.dispatcher_output_dtype = random.Any(DtypeChoice::kNvfp4);
                          }
                          return phase;
                        }),
                        .min_workers = random.Index(),
                        .join_timeout = random.Time(),
                        .former_model_kept = random.Time(),
                        .max_tokens_per_step = random.Index(),
                        .layers = random.List([&random] {
                          LayerSpec layer{LayerId{random.Index()}, {}, DtypeChoice::kAuto};
                          if (random.rng().Below(2) == 0) layer.phase = random.Any(Phase::kMixed);
                          layer.dispatcher_output_dtype = random.Any(DtypeChoice::kNvfp4);
                          return layer;
                        })};
    if (round % 2 == 0) spec.dispatcher_output_dtype = random.Any(DtypeChoice::kNvfp4);
    spec.moe_runner_backend = random.Any(RunnerBackend::kHumming);
    v1::ApplyDeploymentRequest proto;
    Encode(spec, proto.mutable_deployment());

    SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec back, FromProto(proto));

    ASSERT_EQ(back, spec) << "round " << round;
  }
}

// R2: what the coordinator was set to is shown, and no request can set it.
TEST(ConvertAdminTest, ShowsTheCoordinatorsDefaultsAndTakesNone) {
  DeploymentView view;
  view.spec.coordinator_defaults = {DtypeChoice::kFp8, "the environment", ""};
  v1::Deployment shown;

  Encode(view, &shown);

  EXPECT_EQ(shown.coordinator_defaults().dispatcher_output_dtype(), v1::DTYPE_CHOICE_FP8);
  EXPECT_EQ(shown.coordinator_defaults().bf16_dispatch_flag(), "the environment");
  EXPECT_EQ(shown.coordinator_defaults().npu_normal_int8_flag(), "");
  EXPECT_EQ(shown.spec().dispatcher_output_dtype(), v1::DTYPE_CHOICE_UNSPECIFIED);
  v1::ApplyDeploymentRequest request;
  *request.mutable_deployment() = shown.spec();
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec asked, FromProto(request));
  EXPECT_EQ(asked.coordinator_defaults, DispatchDefaults{});
}

// Forgotten, it must not mean the first layer.
TEST(ConvertAdminTest, ALayerEntryWithoutItsLayerIsRefused) {
  v1::ApplyDeploymentRequest proto;
  proto.mutable_deployment()->set_name("demo");
  proto.mutable_deployment()->add_layers()->set_dispatcher_output_dtype(v1::DTYPE_CHOICE_BF16);

  const absl::Status refused = FromProto(proto).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(refused).at("field"), "ApplyDeploymentRequest.deployment.layers[0].layer");
}

TEST(ConvertAdminTest, AnApplyWithoutDeploymentOrWithABadPhaseIsRefused) {
  v1::ApplyDeploymentRequest proto;
  EXPECT_THAT(FromProto(proto), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));

  proto.mutable_deployment()->add_phases();
  const auto refused = FromProto(proto);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(refused.status()).at("field"),
            "ApplyDeploymentRequest.deployment.phases[0].phase");
  proto.mutable_deployment()->clear_phases();
  proto.mutable_deployment()->add_layers()->set_layer(3);
  const auto silent = FromProto(proto);
  EXPECT_THAT(silent, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(silent.status()).at("field"),
            "ApplyDeploymentRequest.deployment.layers[0].dispatcher_output_dtype");
}

}  // namespace
}  // namespace switchyard
