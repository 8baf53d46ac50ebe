#include "services/coordinator/admin_queries.h"

#include "gtest/gtest.h"

#include "core/resolve/what_if.h"
#include "services/convert/admin.h"
#include "services/convert/plan.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomMessages;

DispatchConfig Config(int layer, Phase phase) {
  DispatchConfig config;
  config.layer = LayerId{layer};
  config.phase = phase;
  config.trail = {"asked for by the deployment", "every worker takes bf16"};
  return config;
}

// Two deployments of one model, "a" serving and "b" still waiting, and one of another.
CoordinatorView AView() {
  RandomMessages random(3);
  DeploymentView a;
  a.spec.name = "a";
  a.spec.model = "m";
  a.spec.checkpoint = "/models/m";
  a.shape = {.hidden = 8, .intermediate = 4, .experts = 2, .top_k = 1};
  a.layers = {LayerId{1}, LayerId{3}};
  a.storage.resize(2);
  a.manifest = random.Digest();
  a.state = DeploymentState::kServing;
  auto news = std::make_shared<PlanUpdate>();
  news->plan.deployment = "a";
  news->plan.model = "m";
  news->plan.epoch = Epoch{7};
  news->plan.workers = {random.Worker(), random.Worker()};
  for (const int layer : {1, 3}) {
    news->plan.layers.push_back(
        {LayerId{layer},
         {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}}, {ExpertId{1}, WorkerOrdinal{1}, SlotId{0}}}});
    news->plan.configs.push_back(Config(layer, Phase::kPrefill));
    news->plan.configs.push_back(Config(layer, Phase::kDecode));
  }
  news->hash = HashOf(news->plan);
  a.serving = news;
  a.sessions = 2;
  a.left_out = {"w9: no memory"};

  DeploymentView b = a;
  b.spec.name = "b";
  b.serving = nullptr;
  b.state = DeploymentState::kPending;
  b.pending = Epoch{1};
  b.activity = "waits for 2 workers, has 1";
  b.problem = MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash, "tensor x is wrong");

  DeploymentView c = b;
  c.spec.name = "c";
  c.spec.model = "another";
  c.manifest = random.Digest();

  WorkerView worker{.id = "w0",
                    .incarnation = random.rng().NextId<Incarnation>(),
                    .endpoint = "h:1",
                    .state = WorkerState::kDisconnected,
                    .capabilities = random.Capabilities(),
                    .lease_left = std::chrono::milliseconds(1500),
                    .progress = 12,
                    .experts = 5,
                    .resident = {{"a", Epoch{7}, news->hash, true}},
                    .problem = "unreachable: at h:1 no worker answers"};
  return {{worker}, {a, b, c}};
}

TEST(AdminQueriesTest, DeploymentsShowWhatServesAndWhatIsWrong) {
  const CoordinatorView view = AView();

  const v1::ListDeploymentsResponse list = ListDeployments(view);

  ASSERT_EQ(list.deployments_size(), 3);
  const v1::Deployment& a = list.deployments(0);
  EXPECT_EQ(a.spec().name(), "a");
  EXPECT_EQ(a.state(), v1::DEPLOYMENT_STATE_SERVING);
  EXPECT_EQ(a.committed_epoch(), 7U);
  EXPECT_EQ(a.plan_hash().size(), 32U);
  EXPECT_EQ(a.sessions(), 2U);
  EXPECT_EQ(a.left_out(0), "w9: no memory");
  EXPECT_FALSE(a.has_problem());
  const v1::Deployment& b = list.deployments(1);
  EXPECT_EQ(b.state(), v1::DEPLOYMENT_STATE_PENDING);
  EXPECT_EQ(b.committed_epoch(), 0U);
  EXPECT_EQ(b.plan_hash(), "");
  EXPECT_EQ(b.pending_epoch(), 1U);
  EXPECT_EQ(b.activity(), "waits for 2 workers, has 1");
  EXPECT_EQ(b.problem().message(), "tensor x is wrong");
}

TEST(AdminQueriesTest, FindsADeploymentByName) {
  const CoordinatorView view = AView();
  v1::GetDeploymentRequest request;
  request.set_name("b");

  SY_ASSERT_OK_AND_ASSIGN(const auto response, GetDeployment(view, request));
  EXPECT_EQ(response.deployment().spec().name(), "b");

  request.set_name("zzz");
  const auto missing = GetDeployment(view, request);
  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_EQ(missing.status().message(), "no deployment zzz: these exist: a, b, c");
}

TEST(AdminQueriesTest, AnUnnamedDeploymentIsTheOnlyOne) {
  CoordinatorView view = AView();
  EXPECT_THAT(GetPlan(view, {}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));

  view.deployments.resize(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto response, GetPlan(view, {}));
  EXPECT_EQ(response.plan().epoch(), 7U);

  view.deployments.clear();
  EXPECT_THAT(GetPlan(view, {}), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST(AdminQueriesTest, APlanIsTheServingOneWithItsHash) {
  const CoordinatorView view = AView();
  v1::GetPlanRequest request;
  request.set_deployment("a");

  SY_ASSERT_OK_AND_ASSIGN(const auto response, GetPlan(view, request));

  Plan plan;
  Decoder at("Plan");
  Decode(at, response.plan(), &plan);
  SY_ASSERT_OK(at.status());
  EXPECT_EQ(plan, view.deployments[0].serving->plan);

  request.set_deployment("b");
  const auto none = GetPlan(view, request);
  EXPECT_THAT(none, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_NE(std::string(none.status().message()).find("waits for 2 workers"), std::string::npos);
}

TEST(AdminQueriesTest, ModelsOfEqualManifestsAreOne) {
  const v1::ListModelsResponse list = ListModels(AView());

  ASSERT_EQ(list.models_size(), 2);
  EXPECT_EQ(list.models(0).name(), "another");
  EXPECT_EQ(list.models(1).name(), "m");
  ASSERT_EQ(list.models(1).deployments_size(), 2);
  EXPECT_EQ(list.models(1).deployments(1), "b");
  EXPECT_EQ(list.models(1).layers(1), 3U);
  EXPECT_EQ(list.models(1).shape().hidden(), 8U);
}

TEST(AdminQueriesTest, ModelsAreThoseThatServe) {
  CoordinatorView view = AView();
  DeploymentView& c = view.deployments[2];
  c.served = ServedModel{.name = "former",
                         .checkpoint = "",
                         .shape = {.hidden = 16},
                         .layers = {LayerId{0}},
                         .manifest = Sha256("former")};
  DeploymentView reading;
  reading.spec.name = "d";
  reading.spec.model = "unread";
  reading.state = DeploymentState::kReading;
  view.deployments.push_back(reading);

  const v1::ListModelsResponse list = ListModels(view);

  ASSERT_EQ(list.models_size(), 2) << "neither what is coming to c nor what is read for d";
  EXPECT_EQ(list.models(0).name(), "former");
  EXPECT_EQ(list.models(0).checkpoint(), "");
  EXPECT_EQ(list.models(0).shape().hidden(), 16U);
  EXPECT_EQ(list.models(0).deployments(0), "c");
  EXPECT_EQ(list.models(1).name(), "m");
}

TEST(AdminQueriesTest, ADeploymentThatIsReadIsFoundByNameAlone) {
  CoordinatorView view = AView();
  view.deployments.resize(1);
  DeploymentView reading;
  reading.spec.name = "d";
  reading.state = DeploymentState::kReading;
  reading.activity = "reading /models/d (not begun)";
  view.deployments.push_back(reading);

  SY_ASSERT_OK_AND_ASSIGN(const auto unnamed, GetPlan(view, {}));
  EXPECT_EQ(unnamed.plan().deployment(), "a");
  v1::GetPlanRequest request;
  request.set_deployment("d");
  const auto none = GetPlan(view, request);
  EXPECT_THAT(none, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_EQ(none.status().message(), "deployment d has no plan yet: reading /models/d (not begun)");
  v1::ExplainLayerRequest layer;
  layer.set_deployment("d");
  EXPECT_THAT(ExplainLayer(view, layer),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
}

TEST(AdminQueriesTest, WorkersShowLeaseAndWhatTheyHold) {
  CoordinatorView view = AView();

  const v1::ListWorkersResponse list = ListWorkers(view);

  ASSERT_EQ(list.workers_size(), 1);
  const v1::Worker& worker = list.workers(0);
  EXPECT_EQ(worker.id(), "w0");
  EXPECT_EQ(worker.state(), v1::WORKER_STATE_DISCONNECTED);
  EXPECT_EQ(worker.lease_left().seconds(), 1);
  EXPECT_EQ(worker.lease_left().nanos(), 500'000'000);
  EXPECT_EQ(worker.resident(0).epoch(), 7U);
  EXPECT_EQ(worker.experts(), 5U);
  EXPECT_EQ(worker.progress(), 12U);
  EXPECT_EQ(worker.problem(), "unreachable: at h:1 no worker answers");

  view.workers[0].lease_left = -std::chrono::seconds(1);  // Over, not yet noticed.
  EXPECT_EQ(ListWorkers(view).workers(0).lease_left().seconds(), 0);
}

TEST(AdminQueriesTest, ExplainsOneLayerWithItsReasons) {
  const CoordinatorView view = AView();
  v1::ExplainLayerRequest request;
  request.set_deployment("a");
  request.set_layer(3);

  SY_ASSERT_OK_AND_ASSIGN(const auto both, ExplainLayer(view, request));
  EXPECT_EQ(both.epoch(), 7U);
  EXPECT_EQ(both.workers_size(), 2);
  EXPECT_EQ(both.placement().layer(), 3U);
  EXPECT_EQ(both.placement().experts_size(), 2);
  ASSERT_EQ(both.configs_size(), 2);
  EXPECT_EQ(both.configs(0).trail(0), "asked for by the deployment");

  request.set_phase(v1::PHASE_DECODE);
  SY_ASSERT_OK_AND_ASSIGN(const auto decode, ExplainLayer(view, request));
  ASSERT_EQ(decode.configs_size(), 1);
  EXPECT_EQ(decode.configs(0).phase(), v1::PHASE_DECODE);
}

// What was applied since and is refused must not be the reason of what serves.
TEST(AdminQueriesTest, ExplainsTheRevisionThatServes) {
  CoordinatorView view = AView();
  DeploymentView& a = view.deployments[0];
  a.spec.phases = {{Phase::kDecode, {}}};
  Revision serving{.number = 4, .spec = a.spec, .facts = nullptr};
  auto facts = std::make_shared<ModelFacts>();
  facts->shape = a.shape;
  facts->layers = a.layers;
  facts->storage = a.storage;
  serving.facts = facts;
  a.revisions = std::make_shared<Revisions::List>(Revisions::List{serving});
  a.served_revision = 4;
  a.spec.model = "refused";
  a.spec.phases = {{Phase::kPrefill, {}}};
  a.layers = {LayerId{1}};
  a.storage.resize(1);
  a.shape.hidden = 64;
  v1::ExplainLayerRequest request;
  request.set_deployment("a");
  request.set_layer(3);
  request.mutable_edge()->set_source("cpu");
  request.mutable_edge()->set_worker("ascend_a3");

  SY_ASSERT_OK_AND_ASSIGN(const auto served, ExplainLayer(view, request));
  ASSERT_GT(served.hypothetical_size(), 0);
  for (const auto& would : served.hypothetical()) EXPECT_EQ(would.phase(), v1::PHASE_DECODE);

  a.served_revision = 0;  // not known
  EXPECT_THAT(ExplainLayer(view, request),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
}

TEST(AdminQueriesTest, AnUnknownLayerOrPhaseIsRefused) {
  const CoordinatorView view = AView();
  v1::ExplainLayerRequest request;
  request.set_deployment("a");
  request.set_layer(2);

  const auto missing = ExplainLayer(view, request);
  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_EQ(missing.status().message(),
            "layer 2 of model m is not an MoE layer; its MoE layers are: 1, 3");

  request.set_layer(~0U);
  EXPECT_THAT(ExplainLayer(view, request),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  request.set_layer(1);
  request.set_phase(static_cast<v1::Phase>(9));
  EXPECT_THAT(ExplainLayer(view, request),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST(AdminQueriesTest, AnEdgeOfThePlanIsShownAndAnotherIsAHypothesis) {
  CoordinatorView view = AView();
  view.deployments[0].spec.phases.push_back({Phase::kDecode, {}});
  v1::ExplainLayerRequest request;
  request.set_deployment("a");
  request.set_layer(3);
  request.mutable_edge()->set_source("cpu");

  request.mutable_edge()->set_worker("cpu");
  SY_ASSERT_OK_AND_ASSIGN(const auto there, ExplainLayer(view, request));
  EXPECT_EQ(there.configs_size(), 2);
  EXPECT_EQ(there.hypothetical_size(), 0);

  request.mutable_edge()->set_worker("gpu");
  SY_ASSERT_OK_AND_ASSIGN(const auto absent, ExplainLayer(view, request));
  EXPECT_EQ(absent.configs_size(), 0);
  ASSERT_EQ(absent.hypothetical_size(), 2);
  EXPECT_EQ(absent.hypothetical(1).worker_profile(), "cuda_sm100");

  request.mutable_edge()->set_worker("gpx");
  EXPECT_THAT(ExplainLayer(view, request),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

// The deployment "b" has no plan, and asks its experts for what they do not take.
CoordinatorView ARefusedView() {
  CoordinatorView view = AView();
  DeploymentView& b = view.deployments[1];
  b.activity = "refused";
  b.spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}};
  b.spec.max_tokens_per_step = 64;
  b.spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  b.storage[1].scheme = QuantScheme::kAwqInt4;
  b.storage[1].quant_config.emplace();
  return view;
}

v1::ExplainLayerRequest AboutLayer3(const std::string& deployment) {
  v1::ExplainLayerRequest request;
  request.set_deployment(deployment);
  request.set_layer(3);
  return request;
}

TEST(AdminQueriesTest, ExplainsARefusedDeploymentWithTheWorkersThatAreThere) {
  CoordinatorView view = ARefusedView();
  WorkerView& w0 = view.workers[0];
  w0.state = WorkerState::kLive;
  w0.capabilities = FullCapabilities(*FindDeviceProfile("cpu"));

  SY_ASSERT_OK_AND_ASSIGN(const auto response, ExplainLayer(view, AboutLayer3("b")));

  EXPECT_EQ(response.epoch(), 0U);
  EXPECT_EQ(response.activity(), "refused");
  EXPECT_FALSE(response.has_placement());
  EXPECT_EQ(response.hypothetical_size(), 0);
  ASSERT_EQ(response.traces_size(), 2);
  EXPECT_EQ(response.traces(1).phase(), v1::PHASE_DECODE);
  EXPECT_EQ(response.traces(1).refusal().code(), 9);  // FAILED_PRECONDITION
  EXPECT_NE(response.traces(1).page().find("do not take fp8 rows"), std::string::npos);

  v1::ExplainLayerRequest edge = AboutLayer3("b");
  edge.set_phase(v1::PHASE_DECODE);
  edge.mutable_edge()->set_source("cpu");
  edge.mutable_edge()->set_worker("cpu");
  SY_ASSERT_OK_AND_ASSIGN(const auto one, ExplainLayer(view, edge));
  EXPECT_EQ(one.traces_size(), 1);
  edge.mutable_edge()->set_worker("npu");
  SY_ASSERT_OK_AND_ASSIGN(const auto other, ExplainLayer(view, edge));
  EXPECT_EQ(other.traces_size(), 0);
  EXPECT_EQ(other.hypothetical_size(), 3);
}

TEST(AdminQueriesTest, WithoutPlanAndWorkersEveryKindIsAHypothesis) {
  CoordinatorView view = ARefusedView();
  view.workers.clear();

  SY_ASSERT_OK_AND_ASSIGN(const auto response, ExplainLayer(view, AboutLayer3("b")));

  EXPECT_EQ(response.traces_size(), 0);
  EXPECT_EQ(response.hypothetical_size(), 12);  // 6 kinds, 2 phases
  v1::ExplainLayerRequest missing = AboutLayer3("b");
  missing.set_layer(2);
  EXPECT_THAT(ExplainLayer(view, missing),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
}

// One plan worker is known; its decision is traced again beside the configs of the plan.
TEST(AdminQueriesTest, APlanIsShownWithTheDecisionsBehindIt) {
  CoordinatorView view = AView();
  DeploymentView& a = view.deployments[0];
  a.spec.phases = {{Phase::kDecode, {}}};
  WorkerView& w0 = view.workers[0];
  w0.id = a.serving->plan.workers[0].id;
  w0.capabilities = FullCapabilities(*FindDeviceProfile("cpu"));

  SY_ASSERT_OK_AND_ASSIGN(const auto response, ExplainLayer(view, AboutLayer3("a")));

  EXPECT_EQ(response.configs_size(), 2);
  ASSERT_EQ(response.traces_size(), 1);
  const v1::DispatchTrace& trace = response.traces(0);
  EXPECT_EQ(trace.outcome().wire_format(), "bf16");
  EXPECT_EQ(trace.outcome().row_value_bytes(), 16U);
  EXPECT_EQ(trace.outcome().result_row_bytes(), 16U);
  EXPECT_GT(trace.rules_size(), 5);
}

TEST(AdminQueriesTest, WarningsOfAProposalAreShown) {
  DeploymentView view = AView().deployments[0];
  view.warnings = {{WarningId::kFp8ToInt8, "switching to int8"}};

  const v1::ApplyDeploymentResponse response = ApplyResponse(view);

  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_EQ(response.warnings(0).id(), "fp8_to_int8");
  EXPECT_EQ(response.warnings(0).text(), "switching to int8");
}

TEST(AdminQueriesTest, ADryRunShowsTheConfigsOfThePlanThatWouldBe) {
  DeploymentView view = AView().deployments[0];
  EXPECT_EQ(ApplyResponse(view).configs_size(), 0);

  view.proposed = std::make_shared<const Plan>(view.serving->plan);
  const v1::ApplyDeploymentResponse response = ApplyResponse(view);
  EXPECT_EQ(response.configs_size(), 4);
  EXPECT_EQ(response.configs(3).layer(), 3U);
  EXPECT_EQ(response.deployment().spec().name(), "a");
}

}  // namespace
}  // namespace switchyard
