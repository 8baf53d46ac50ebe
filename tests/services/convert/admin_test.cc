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
    spec.pools = random.List([&random] { return random.Text(); });
    v1::ApplyDeploymentRequest proto;
    Encode(spec, proto.mutable_deployment());

    SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec back, FromProto(proto));

    ASSERT_EQ(back, spec) << "round " << round;
  }
}

TEST(ConvertAdminTest, ShowsAChangeInProgress) {
  DeploymentView view;
  view.spec.model = "b";
  view.served = ServedModel{.name = "a",
                            .checkpoint = "/models/a",
                            .shape = {.hidden = 8},
                            .layers = {LayerId{3}},
                            .manifest = Sha256("a")};
  StagingView loading;
  loading.worker = "w1";
  loading.step = StagingStep::kLoading;
  loading.progress = {"demo", Epoch{5}, 34, 48, 1200, 1700};
  loading.pace = {.bytes_per_second = 400,
                  .left = std::chrono::milliseconds(1250),
                  .still = std::chrono::milliseconds(100)};
  StagingView asked;
  asked.worker = "w2";
  asked.step = StagingStep::kAsked;
  asked.waits_for = "it loads epoch 1 of c first";
  view.staging = {loading, asked};
  ReadingView reading;
  reading.model = "b";
  reading.checkpoint = "/models/b";
  reading.bytes_done = 10;
  reading.bytes = 30;
  reading.pace.bytes_per_second = 5;
  view.reading = reading;
  v1::Deployment shown;

  Encode(view, &shown);

  EXPECT_EQ(shown.serving_model().name(), "a");
  EXPECT_EQ(shown.serving_model().checkpoint(), "/models/a");
  EXPECT_EQ(shown.serving_model().shape().hidden(), 8U);
  EXPECT_EQ(shown.serving_model().layers(0), 3U);
  EXPECT_EQ(shown.serving_model().manifest_hash().size(), 32U);
  ASSERT_EQ(shown.staging_size(), 2);
  EXPECT_EQ(shown.staging(0).worker(), "w1");
  EXPECT_EQ(shown.staging(0).step(), v1::STAGING_STEP_LOADING);
  EXPECT_EQ(shown.staging(0).progress().epoch(), 5U);
  EXPECT_EQ(shown.staging(0).progress().experts_done(), 34U);
  EXPECT_EQ(shown.staging(0).progress().bytes(), 1700U);
  EXPECT_EQ(shown.staging(0).bytes_per_second(), 400U);
  EXPECT_EQ(shown.staging(0).left().seconds(), 1);
  EXPECT_EQ(shown.staging(0).left().nanos(), 250'000'000);
  EXPECT_EQ(shown.staging(0).still().nanos(), 100'000'000);
  EXPECT_EQ(shown.staging(1).step(), v1::STAGING_STEP_ASKED);
  EXPECT_FALSE(shown.staging(1).has_left()) << "not known";
  EXPECT_EQ(shown.staging(1).waits_for(), "it loads epoch 1 of c first");
  EXPECT_EQ(shown.reading().checkpoint(), "/models/b");
  EXPECT_EQ(shown.reading().bytes_done(), 10U);
  EXPECT_EQ(shown.reading().bytes(), 30U);
  EXPECT_EQ(shown.reading().bytes_per_second(), 5U);
  EXPECT_FALSE(shown.reading().has_left());

  WorkerView worker;
  worker.staging = {loading};
  v1::Worker of_worker;
  Encode(worker, &of_worker);
  ASSERT_EQ(of_worker.staging_size(), 1);
  EXPECT_EQ(of_worker.staging(0).progress().deployment(), "demo");
}

TEST(ConvertAdminTest, ShowsNoFactsOfACheckpointThatIsNotReadYet) {
  DeploymentView view;
  view.state = DeploymentState::kReading;
  v1::Deployment shown;

  Encode(view, &shown);

  EXPECT_EQ(shown.state(), v1::DEPLOYMENT_STATE_READING);
  EXPECT_FALSE(shown.has_shape());
  EXPECT_EQ(shown.manifest_hash(), "");
  EXPECT_FALSE(shown.has_serving_model());
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
