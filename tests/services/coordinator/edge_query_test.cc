#include "services/coordinator/edge_query.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/resolve/what_if.h"
#include "services/grpc/grpc_status.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

v1::EdgeQuery Query(const std::string& source, const std::string& worker) {
  v1::EdgeQuery query;
  query.set_source(source);
  query.set_worker(worker);
  return query;
}

// Serves layer 3 in `scheme` in prefill and decode.
DeploymentView Serving(QuantScheme scheme) {
  DeploymentView view;
  view.spec.name = "a";
  view.spec.model = "m";
  view.spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};
  view.spec.max_tokens_per_step = 64;
  view.shape = {.hidden = 256, .intermediate = 128, .experts = 8, .top_k = 2};
  view.layers = {LayerId{1}, LayerId{3}};
  view.storage.resize(2);
  view.storage[1].scheme = scheme;
  if (scheme != QuantScheme::kNone) view.storage[1].quant_config.emplace();
  return view;
}

std::vector<v1::HypotheticalDispatch> Ask(const DeploymentView& view, const std::string& source,
                                          const std::string& worker,
                                          std::optional<Phase> phase = Phase::kDecode) {
  const auto query = ParseEdgeQuery(Query(source, worker));
  SY_EXPECT_OK(query.status());
  if (!query.ok()) return {};
  auto answers = HypotheticalDispatches(view, LayerId{3}, phase, *query);
  SY_EXPECT_OK(answers.status());
  return answers.value_or(std::vector<v1::HypotheticalDispatch>());
}

TEST(EdgeQueryTest, AKindIsTheEdgeOfThePlanAndAProfileIsNot) {
  SY_ASSERT_OK_AND_ASSIGN(const EdgeQuery kinds, ParseEdgeQuery(Query("cpu", "gpu")));
  EXPECT_TRUE(kinds.Is({DeviceKind::kCpu, DeviceKind::kCuda}));
  EXPECT_FALSE(kinds.Is({DeviceKind::kCuda, DeviceKind::kCpu}));
  EXPECT_FALSE(kinds.Is({DeviceKind::kCpu, DeviceKind::kAscend}));
  SY_ASSERT_OK_AND_ASSIGN(const EdgeQuery profile, ParseEdgeQuery(Query("cpu", "cuda_sm90")));
  EXPECT_FALSE(profile.Is({DeviceKind::kCpu, DeviceKind::kCuda}));
}

TEST(EdgeQueryTest, AnswersForEachProfileAndPhase) {
  const auto answers = Ask(Serving(QuantScheme::kFp8Block), "gpu", "npu", std::nullopt);

  ASSERT_EQ(answers.size(), 12U);  // 2 sources, 3 workers, 2 phases
  EXPECT_EQ(answers[0].source_profile(), "cuda_sm90");
  EXPECT_EQ(answers[0].worker_profile(), "ascend_a2");
  EXPECT_EQ(answers[0].phase(), v1::PHASE_PREFILL);
  EXPECT_EQ(answers[1].phase(), v1::PHASE_DECODE);
  EXPECT_EQ(answers[1].config().layer(), 3U);
  EXPECT_EQ(answers[1].config().max_tokens_per_step(), 64U);
  EXPECT_GT(answers[1].config().trail_size(), 0);
}

TEST(EdgeQueryTest, SaysWhatTheResolverSays) {
  const auto one = [](QuantScheme scheme, const char* source, const char* worker) {
    return Ask(Serving(scheme), source, worker).at(0).config().wire_dtype();
  };
  EXPECT_EQ(one(QuantScheme::kFp8Block, "cpu", "cuda_sm90"), v1::DISPATCH_DTYPE_FP8);
  EXPECT_EQ(one(QuantScheme::kFp8Block, "cpu", "ascend_a3"), v1::DISPATCH_DTYPE_BF16);
  EXPECT_EQ(one(QuantScheme::kW8A8Int8, "cpu", "ascend_a3"), v1::DISPATCH_DTYPE_INT8);
  // GPUs make no INT8 rows, and nobody asked for them.
  EXPECT_EQ(one(QuantScheme::kW8A8Int8, "cuda_sm90", "ascend_a3"), v1::DISPATCH_DTYPE_BF16);
}

TEST(EdgeQueryTest, TheDeploymentsOverridesCountAndMayBeRefused) {
  DeploymentView view = Serving(QuantScheme::kFp8Block);
  view.spec.dispatcher_output_dtype = DtypeChoice::kBf16;
  EXPECT_EQ(Ask(view, "cpu", "cuda_sm90").at(0).config().wire_dtype(), v1::DISPATCH_DTYPE_BF16);

  view = Serving(QuantScheme::kNvfp4);
  view.spec.dispatcher_output_dtype = DtypeChoice::kNvfp4;
  const v1::HypotheticalDispatch refused = Ask(view, "cpu", "ascend_a2").at(0);
  EXPECT_FALSE(refused.has_config());
  EXPECT_THAT(StatusFromProto(refused.refusal()),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// What the checkpoint says of the layer decides, not its scheme alone.
TEST(EdgeQueryTest, RoleExclusionAndQuantConfigCount) {
  DeploymentView view = Serving(QuantScheme::kNvfp4);
  EXPECT_EQ(Ask(view, "cpu", "cuda_sm100").at(0).config().wire_dtype(), v1::DISPATCH_DTYPE_BF16);
  view.storage[1].quant_config->input_global_scale = 0.25F;
  const v1::DispatchConfig scaled = Ask(view, "cpu", "cuda_sm100").at(0).config();
  EXPECT_EQ(scaled.wire_dtype(), v1::DISPATCH_DTYPE_NVFP4);
  EXPECT_EQ(scaled.global_scale(), 0.25F);

  view = Serving(QuantScheme::kFp8Block);
  EXPECT_EQ(Ask(view, "cpu", "cuda_sm90").at(0).config().wire_dtype(), v1::DISPATCH_DTYPE_FP8);
  view.storage[1].excluded = true;
  EXPECT_EQ(Ask(view, "cpu", "cuda_sm90").at(0).config().wire_dtype(), v1::DISPATCH_DTYPE_BF16);

  view = Serving(QuantScheme::kNone);
  view.spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  view.storage[1].role = LayerRole::kDraft;
  const v1::DispatchConfig draft = Ask(view, "cpu", "cuda_sm90").at(0).config();
  EXPECT_EQ(draft.wire_dtype(), v1::DISPATCH_DTYPE_BF16);
  EXPECT_THAT(draft.trail(), ::testing::Contains(HasSubstr("draft")));
}

// The whole decision goes with the answer, also with a refusal.
TEST(EdgeQueryTest, AnswersCarryEveryStep) {
  DeploymentView view = Serving(QuantScheme::kAwqInt4);
  view.spec.dispatcher_output_dtype = DtypeChoice::kFp8;

  const v1::HypotheticalDispatch refused = Ask(view, "cpu", "ascend_a2").at(0);

  EXPECT_THAT(StatusFromProto(refused.refusal()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  const v1::DispatchTrace& trace = refused.trace();
  EXPECT_EQ(trace.layer(), 3U);
  EXPECT_EQ(trace.worker_profiles(), "ascend_a2");
  EXPECT_EQ(trace.scheme(), v1::QUANT_SCHEME_AWQ_INT4);
  ASSERT_EQ(trace.rules_size(), 10);
  EXPECT_EQ(trace.rules(0).rule(), "explicit");
  EXPECT_TRUE(trace.rules(0).decides());
  EXPECT_EQ(trace.rules(0).candidate(), v1::DISPATCH_DTYPE_FP8);
  EXPECT_EQ(trace.rules(1).candidate(), v1::DISPATCH_DTYPE_UNSPECIFIED);
  ASSERT_EQ(trace.adjustments_size(), 1);
  EXPECT_EQ(trace.adjustments(0).id(), "hardware");
  EXPECT_EQ(trace.adjustments(0).to(), v1::DISPATCH_DTYPE_INT8);
  EXPECT_EQ(trace.warnings(0).id(), "fp8_to_int8");
  EXPECT_FALSE(trace.has_outcome());
  EXPECT_EQ(trace.refusal().message(), refused.refusal().message());
  EXPECT_THAT(trace.page(), HasSubstr("Refused, FAILED_PRECONDITION (BAD_CONFIG): layer 3"));
}

TEST(EdgeQueryTest, LimitsOfTheDeviceCountAsInAPlan) {
  DeploymentView view = Serving(QuantScheme::kNone);
  view.spec.max_tokens_per_step = 513;  // one more than Ascend has

  const v1::HypotheticalDispatch refused = Ask(view, "cpu", "ascend_a2").at(0);
  EXPECT_FALSE(refused.has_config());
  EXPECT_THAT(StatusFromProto(refused.refusal()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(refused.refusal().message(), HasSubstr("max_tokens_per_step 513 exceeds"));

  EXPECT_TRUE(Ask(view, "cpu", "ascend_a2", Phase::kPrefill).at(0).has_config());
}

TEST(EdgeQueryTest, EveryKindIsFromTheSourceOfPlansToAllDevices) {
  SY_ASSERT_OK_AND_ASSIGN(const EdgeQuery query, EveryKind());
  EXPECT_EQ(query.sources.size(), 1U);
  EXPECT_EQ(query.workers.size(), 6U);
}

TEST(EdgeQueryTest, ALayerThatOnlyTheOldPlanHasIsRefused) {
  DeploymentView view = Serving(QuantScheme::kNone);
  view.layers[1] = LayerId{4};
  SY_ASSERT_OK_AND_ASSIGN(const EdgeQuery query, ParseEdgeQuery(Query("cpu", "gpu")));
  EXPECT_THAT(HypotheticalDispatches(view, LayerId{3}, {}, query),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
}

TEST(EdgeQueryTest, RefusesEndsThatAreNone) {
  for (const auto& [source, worker, field] : std::vector<std::array<std::string, 3>>{
           {"", "cpu", "edge.source"}, {"cpu", "", "edge.worker"}, {"cpu", "gpx", "edge.worker"}}) {
    const absl::Status status = ParseEdgeQuery(Query(source, worker)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    EXPECT_EQ(MetadataOf(status).at("field"), field);
  }
}

}  // namespace
}  // namespace switchyard
