// The gRPC skin over the real driver, reached by the real channels and by plain stubs.
#include "services/coordinator/coordinator_server.h"

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/driver.h"
#include "coordinator/store/memory_store.h"
#include "core/base/log.h"
#include "core/protocol_version.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/control.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "tests/services/sink_log.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Brief;
using testing::FailsWith;
using testing::SinkLog;

// A worker that says yes to everything.
class YesWorker final : public AgentStreamSink {
 public:
  YesWorker(const std::string& coordinator, const std::string& id, std::uint64_t incarnation)
      : id_(id), incarnation_{1, incarnation}, channel_(MakeGrpcAgentChannel(coordinator)) {
    const std::lock_guard lock(mutex_);
    stream_ = channel_->Open(this);
  }
  ~YesWorker() override { Hangup(); }

  void Hangup() {
    std::unique_ptr<AgentStream> ending;
    {
      const std::lock_guard lock(mutex_);
      ending = std::move(stream_);
    }
  }
  SinkLog& log() { return log_; }

  void OnUp() override {
    Say(Register{id_, incarnation_, id_ + ":1", testing::MakeCapabilities(), {}});
  }
  void OnMessage(CoordinatorMessage message) override {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      Say(PrepareAck{prepare->plan.deployment, prepare->plan.epoch, prepare->nonce, prepare->hash});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      Say(CommitAck{commit->deployment, commit->epoch, commit->hash});
    } else if (const auto* retire = std::get_if<Retire>(&message)) {
      Say(RetireAck{retire->deployment, retire->epoch});
    } else if (std::holds_alternative<Registered>(message)) {
      log_.Add("registered");
    }
  }
  void OnDown(const absl::Status& why) override { log_.Add("down " + Brief(why)); }

 private:
  void Say(const WorkerMessage& message) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Send(message);
  }

  const std::string id_;
  const Incarnation incarnation_;
  SinkLog log_;
  const std::unique_ptr<AgentChannel> channel_;
  std::mutex mutex_;
  std::unique_ptr<AgentStream> stream_;  // guarded by mutex_
};

class WatchLog final : public WatchSink {
 public:
  void OnPlan(const PlanUpdate& news) override {
    log.Add(absl::StrCat("plan ", news.plan.epoch.value, " of ", news.plan.workers.size()));
  }
  void OnWatchEnded(const absl::Status& why) override { log.Add("ended " + Brief(why)); }
  SinkLog log;
};

class CoordinatorServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DriverOptions options;
    options.coordinator.lease_ttl = seconds(60);
    Driver::Parts parts{
        std::make_unique<MemoryStore>(),
        [](const std::string&) { return testing::MakeLayout(); },
        [](const std::string&, const ManifestProgress&) { return testing::MakeFacts(); },
        &clock_,
        &rng_,
        &logger_};
    SY_ASSERT_OK_AND_ASSIGN(driver, Driver::Create(options, std::move(parts)));
    SY_ASSERT_OK_AND_ASSIGN(
        server, CoordinatorServer::Start({.grpc = {}, .incarnation = {7, 8}}, driver.get()));
    endpoint = server->grpc().endpoint();
    channel = MakeGrpcSessionChannel(endpoint);
    grpc_channel = MakeGrpcChannel(endpoint, 4 * kControlMessageBytesMax);
    stub = v1::CoordinatorService::NewStub(grpc_channel);
  }
  void TearDown() override {
    channel.reset();
    if (driver != nullptr) driver->Shutdown(seconds(1));
    server.reset();
  }

  // One unary call with a deadline.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::CoordinatorService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(30)));
    Response response;
    const absl::Status status = StatusFromGrpc(((*stub).*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  absl::StatusOr<v1::ApplyDeploymentResponse> Apply(const std::string& name, bool validate_only) {
    v1::ApplyDeploymentRequest request;
    request.mutable_deployment()->set_name(name);
    request.mutable_deployment()->set_model("m");
    request.mutable_deployment()->set_checkpoint("/models/m");
    request.set_validate_only(validate_only);
    return Call(&v1::CoordinatorService::Stub::ApplyDeployment, request);
  }
  v1::ListDeploymentsResponse Deployments() {
    const auto list =
        Call(&v1::CoordinatorService::Stub::ListDeployments, v1::ListDeploymentsRequest());
    EXPECT_THAT(list, testing::IsOk());
    return list.value_or(v1::ListDeploymentsResponse());
  }
  // Until `condition` holds, at most 30 s.
  bool Eventually(const std::function<bool()>& condition) {
    const TimePoint end = clock_.Now() + seconds(30);
    while (!condition()) {
      if (clock_.Now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool Serves(std::uint64_t epoch) {
    return Eventually([&] {
      const v1::ListDeploymentsResponse list = Deployments();
      return list.deployments_size() == 1 && list.deployments(0).committed_epoch() == epoch &&
             list.deployments(0).state() == v1::DEPLOYMENT_STATE_SERVING;
    });
  }

  SteadyClock clock_;
  SystemRng rng_;
  Logger logger_{"test", LogLevel::kOff};
  std::unique_ptr<Driver> driver;
  std::unique_ptr<CoordinatorServer> server;
  std::string endpoint;
  std::unique_ptr<SessionChannel> channel;
  std::shared_ptr<grpc::Channel> grpc_channel;
  std::unique_ptr<v1::CoordinatorService::Stub> stub;
};

TEST_F(CoordinatorServerTest, AWorkerJoinsADeploymentServesASessionFollowsItsEpochs) {
  SY_ASSERT_OK(Apply("d", false));
  YesWorker first(endpoint, "w0", 1);
  ASSERT_TRUE(Serves(1));

  OpenSessionRequest order;
  order.model = "m";
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, channel->OpenSession(order, seconds(10)));
  WatchLog watch;
  auto stream = channel->Watch(
      {grant.session, grant.plan.deployment, grant.request.phase, grant.plan.epoch, grant.hash},
      &watch);
  YesWorker second(endpoint, "w1", 2);

  ASSERT_TRUE(watch.log.WaitFor(1));
  EXPECT_EQ(watch.log.lines()[0], "plan 2 of 2");
  EXPECT_EQ(HashOf(grant.plan), grant.hash);
  EXPECT_EQ(grant.plan.workers.at(0).id, "w0");
  EXPECT_NE(grant.cookie, Cookie{});
  SY_EXPECT_OK(channel->CloseSession(grant.session, seconds(10)));
  EXPECT_TRUE(watch.log.WaitForLast("ended"));
}

TEST_F(CoordinatorServerTest, TheReadOnlyCallsShowWhatServes) {
  SY_ASSERT_OK(Apply("d", false));
  YesWorker worker(endpoint, "w0", 1);
  ASSERT_TRUE(Serves(1));

  v1::GetPlanRequest plan_request;
  SY_ASSERT_OK_AND_ASSIGN(const auto plan,
                          Call(&v1::CoordinatorService::Stub::GetPlan, plan_request));
  v1::ExplainLayerRequest explain_request;
  explain_request.set_layer(plan.plan().layers(0).layer());
  SY_ASSERT_OK_AND_ASSIGN(const auto explained,
                          Call(&v1::CoordinatorService::Stub::ExplainLayer, explain_request));
  SY_ASSERT_OK_AND_ASSIGN(const auto models,
                          Call(&v1::CoordinatorService::Stub::ListModels, v1::ListModelsRequest()));
  SY_ASSERT_OK_AND_ASSIGN(const auto workers, Call(&v1::CoordinatorService::Stub::ListWorkers,
                                                   v1::ListWorkersRequest()));
  v1::GetDeploymentRequest deployment_request;
  deployment_request.set_name("d");
  SY_ASSERT_OK_AND_ASSIGN(const auto deployment,
                          Call(&v1::CoordinatorService::Stub::GetDeployment, deployment_request));
  SY_ASSERT_OK_AND_ASSIGN(const auto version,
                          Call(&v1::CoordinatorService::Stub::GetVersion, v1::GetVersionRequest()));

  EXPECT_EQ(plan.plan().epoch(), 1U);
  EXPECT_GT(explained.configs_size(), 0);
  EXPECT_GT(explained.configs(0).trail_size(), 0);
  EXPECT_EQ(models.models(0).name(), "m");
  EXPECT_EQ(workers.workers(0).id(), "w0");
  EXPECT_EQ(workers.workers(0).state(), v1::WORKER_STATE_LIVE);
  EXPECT_EQ(deployment.deployment().spec().checkpoint(), "/models/m");
  EXPECT_EQ(version.incarnation(), "00000000000000070000000000000008");
  EXPECT_EQ(version.frame_version(), 1U);
  EXPECT_EQ(version.protocol_version(), kProtocolVersion);
  EXPECT_EQ(workers.workers(0).protocol_version(), kProtocolVersion);
}

TEST_F(CoordinatorServerTest, WorkersAreDrainedAndDeploymentsDeleted) {
  SY_ASSERT_OK(Apply("d", false));
  YesWorker first(endpoint, "w0", 1);
  YesWorker second(endpoint, "w1", 2);
  ASSERT_TRUE(Eventually([&] {
    const auto plan = Call(&v1::CoordinatorService::Stub::GetPlan, v1::GetPlanRequest());
    return plan.ok() && plan->plan().workers_size() == 2;
  }));

  v1::DrainWorkerRequest drain;
  drain.set_id("w1");
  SY_ASSERT_OK_AND_ASSIGN(const auto drained,
                          Call(&v1::CoordinatorService::Stub::DrainWorker, drain));
  EXPECT_EQ(drained.worker().state(), v1::WORKER_STATE_DRAINING);
  EXPECT_EQ(drained.warnings_size(), 0);
  ASSERT_TRUE(Eventually([&] {
    const auto workers = Call(&v1::CoordinatorService::Stub::ListWorkers, v1::ListWorkersRequest());
    return workers.ok() && workers->workers(1).state() == v1::WORKER_STATE_DRAINED;
  }));
  drain.set_id("w0");
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::DrainWorker, drain),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kNotReady));
  v1::CordonWorkerRequest cordon;
  cordon.set_id("w1");
  SY_ASSERT_OK_AND_ASSIGN(const auto cordoned,
                          Call(&v1::CoordinatorService::Stub::CordonWorker, cordon));
  EXPECT_EQ(cordoned.worker().state(), v1::WORKER_STATE_CORDONED);
  v1::UncordonWorkerRequest uncordon;
  uncordon.set_id("w1");
  SY_ASSERT_OK_AND_ASSIGN(const auto uncordoned,
                          Call(&v1::CoordinatorService::Stub::UncordonWorker, uncordon));
  EXPECT_EQ(uncordoned.worker().state(), v1::WORKER_STATE_LIVE);

  v1::DeleteDeploymentRequest gone;
  gone.set_name("d");
  SY_ASSERT_OK_AND_ASSIGN(const auto deleted,
                          Call(&v1::CoordinatorService::Stub::DeleteDeployment, gone));
  EXPECT_EQ(deleted.deployment().state(), v1::DEPLOYMENT_STATE_DELETING);
  EXPECT_TRUE(Eventually([&] { return Deployments().deployments_size() == 0; }));
}

TEST_F(CoordinatorServerTest, ARollbackMakesARevision) {
  SY_ASSERT_OK(Apply("d", false));
  v1::RollbackDeploymentRequest back;
  back.set_name("d");
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::RollbackDeployment, back),
              FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest))
      << "there is nothing before it";
  v1::ApplyDeploymentRequest other;
  other.mutable_deployment()->set_name("d");
  other.mutable_deployment()->set_checkpoint("/models/m");
  other.mutable_deployment()->set_max_tokens_per_step(64);
  SY_ASSERT_OK_AND_ASSIGN(const auto applied,
                          Call(&v1::CoordinatorService::Stub::ApplyDeployment, other));
  EXPECT_EQ(applied.deployment().revision(), 2U);

  back.set_to_revision(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto answer,
                          Call(&v1::CoordinatorService::Stub::RollbackDeployment, back));

  EXPECT_EQ(answer.deployment().revision(), 3U);
  EXPECT_EQ(answer.deployment().spec().max_tokens_per_step(), 512U);
  SY_ASSERT_OK_AND_ASSIGN(const auto list, Call(&v1::CoordinatorService::Stub::ListRevisions,
                                                v1::ListRevisionsRequest()));
  ASSERT_EQ(list.revisions_size(), 3);
  EXPECT_EQ(list.deployment(), "d");
  EXPECT_EQ(list.revisions(0).state(), v1::REVISION_STATE_UNUSED);
  EXPECT_EQ(list.revisions(1).spec().max_tokens_per_step(), 64U);
  EXPECT_EQ(list.revisions(2).state(), v1::REVISION_STATE_PENDING);
  EXPECT_EQ(list.revisions(2).rollback_to(), 1U);
  EXPECT_GT(list.revisions(2).applied().seconds(), 1'700'000'000);
  EXPECT_EQ(list.revisions(2).manifest_hash(), list.revisions(0).manifest_hash());
  back.set_name("no name");
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::RollbackDeployment, back),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(CoordinatorServerTest, NamesThatAreNoneAreRefused) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);
  const std::string huge(1 << 20, 'x');
  for (const std::string& name : {std::string(), std::string("a b"), huge}) {
    v1::DeleteDeploymentRequest gone;
    gone.set_name(name);
    EXPECT_THAT(Call(&v1::CoordinatorService::Stub::DeleteDeployment, gone), bad);
    v1::DrainWorkerRequest drain;
    drain.set_id(name);
    EXPECT_THAT(Call(&v1::CoordinatorService::Stub::DrainWorker, drain), bad);
  }
}

TEST_F(CoordinatorServerTest, ValidateOnlyAnswersAndChangesNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const auto applied, Apply("d", true));

  EXPECT_EQ(applied.deployment().spec().name(), "d");
  EXPECT_GT(applied.deployment().spec().phases_size(), 0);  // Defaults are filled in.
  EXPECT_EQ(Deployments().deployments_size(), 0);
}

TEST_F(CoordinatorServerTest, RefusalsCarryTheirReason) {
  EXPECT_THAT(Apply("not a name", false),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::ApplyDeployment, v1::ApplyDeploymentRequest()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::GetPlan, v1::GetPlanRequest()),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  v1::OpenSessionRequest nothing;
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::OpenSession, nothing),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport))
      << "of a release before versions were sent";
  nothing.set_protocol_version(kProtocolVersion);
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::OpenSession, nothing),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(Call(&v1::CoordinatorService::Stub::CloseSession, v1::CloseSessionRequest()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  OpenSessionRequest order;
  order.model = "zzz";
  EXPECT_THAT(channel->OpenSession(order, seconds(10)),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  SY_ASSERT_OK(Apply("d", false));
  order.model = "m";
  EXPECT_THAT(channel->OpenSession(order, seconds(10)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  WatchLog watch;
  const auto stream = channel->Watch({{1, 2}, "zzz", Phase::kMixed, Epoch{1}, {}}, &watch);
  EXPECT_TRUE(watch.log.WaitForLast("ended NOT_FOUND UNKNOWN_MODEL"));
}

TEST_F(CoordinatorServerTest, AMalformedWatchIsRefused) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(30)));

  const auto reader = stub->WatchPlan(&context, v1::WatchPlanRequest());

  v1::WatchPlanResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_THAT(StatusFromGrpc(reader->Finish()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(CoordinatorServerTest, MessagesOverTheLimitAreRefusedWithTheirReason) {
  // Over our limit and below gRPC's cap: refused by us; over the cap as well: by gRPC.
  for (const std::size_t bytes :
       {kControlMessageBytesMax + 1, kControlMessageBytesMax + kGrpcCapSlackBytes + 1}) {
    v1::ApplyDeploymentRequest request;
    request.mutable_deployment()->set_name(std::string(bytes, 'd'));
    EXPECT_THAT(Call(&v1::CoordinatorService::Stub::ApplyDeployment, request),
                FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge))
        << bytes;

    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(30)));
    const auto control = v1::WorkerControlService::NewStub(grpc_channel)->Session(&context);
    v1::SessionRequest message;
    message.mutable_register_()->set_worker_id(std::string(bytes, 'w'));
    control->Write(message);
    v1::SessionResponse response;
    EXPECT_FALSE(control->Read(&response));
    EXPECT_THAT(StatusFromGrpc(control->Finish()),
                FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge))
        << bytes;
  }
}

// The worker's log says why its stream ended; both versions are in it.
TEST_F(CoordinatorServerTest, AWorkerOfAnotherVersionIsRefused) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(30)));
  const auto control = v1::WorkerControlService::NewStub(grpc_channel)->Session(&context);
  v1::SessionRequest message =
      ToProto(WorkerMessage(Register{"w9", {7, 9}, "w9:1", testing::MakeCapabilities(), {}}));
  message.mutable_register_()->set_protocol_version(kProtocolVersion + 1);

  control->Write(message);

  v1::SessionResponse response;
  EXPECT_FALSE(control->Read(&response));
  const absl::Status status = StatusFromGrpc(control->Finish());
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  EXPECT_EQ(MetadataOf(status)["peer_version"], absl::StrCat(kProtocolVersion + 1));
  EXPECT_EQ(MetadataOf(status)["own_version"], absl::StrCat(kProtocolVersion));
}

TEST_F(CoordinatorServerTest, AControlStreamBeginsWithRegister) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(30)));
  const auto control = v1::WorkerControlService::NewStub(grpc_channel)->Session(&context);

  control->Write(ToProto(WorkerMessage(Heartbeat{1})));

  v1::SessionResponse response;
  EXPECT_FALSE(control->Read(&response));
  const absl::Status status = StatusFromGrpc(control->Finish());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(ReasonOf(status), Reason::kUnspecified) << status;
}

TEST_F(CoordinatorServerTest, AWorkerThatHangsUpIsSeenAtOnce) {
  YesWorker worker(endpoint, "w0", 1);
  ASSERT_TRUE(worker.log().WaitForLast("registered"));

  worker.Hangup();

  EXPECT_TRUE(Eventually([&] {
    const auto workers = Call(&v1::CoordinatorService::Stub::ListWorkers, v1::ListWorkersRequest());
    return workers.ok() && (workers->workers_size() == 0 ||
                            workers->workers(0).state() == v1::WORKER_STATE_DISCONNECTED);
  }));
}

TEST_F(CoordinatorServerTest, ShutdownEndsStreamsAndWatchesWithTheReason) {
  SY_ASSERT_OK(Apply("d", false));
  YesWorker worker(endpoint, "w0", 1);
  ASSERT_TRUE(Serves(1));
  OpenSessionRequest order;
  order.model = "m";
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, channel->OpenSession(order, seconds(10)));
  WatchLog watch;
  const auto stream = channel->Watch(
      {grant.session, "d", grant.request.phase, grant.plan.epoch, grant.hash}, &watch);

  driver->Shutdown(seconds(1));
  server->grpc().Shutdown(seconds(5));

  EXPECT_TRUE(worker.log().WaitForLast("down UNAVAILABLE COORDINATOR_LOST"));
  EXPECT_TRUE(watch.log.WaitForLast("ended UNAVAILABLE COORDINATOR_LOST"));
}

TEST_F(CoordinatorServerTest, APortInUseIsSaidPlainly) {
  CoordinatorServerOptions options;
  options.grpc.port = server->grpc().port();

  EXPECT_THAT(CoordinatorServer::Start(options, driver.get()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
}

// Workers and watches that come and go at random moments: whatever dies, nothing else does.
TEST_F(CoordinatorServerTest, SurvivesStreamsThatEndAtAnyMoment) {
  const std::uint64_t seed = 20261121;
  SeededRng rng(seed);
  SY_ASSERT_OK(Apply("d", false));
  YesWorker steady(endpoint, "steady", 1);
  ASSERT_TRUE(Serves(1));
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    YesWorker guest(endpoint, absl::StrCat("guest", rng.Below(3)), 100 + rng.Next() % 1000);
    WatchLog watch;
    const auto stream =
        channel->Watch({rng.NextId<SessionId>(), "d", Phase::kMixed, Epoch{1}, {}}, &watch);
    for (std::uint64_t calls = rng.Below(4); calls > 0; --calls) Deployments();
  }

  EXPECT_TRUE(Eventually([&] {
    const v1::ListDeploymentsResponse list = Deployments();
    return list.deployments_size() == 1 &&
           list.deployments(0).state() == v1::DEPLOYMENT_STATE_SERVING;
  }));
}

}  // namespace
}  // namespace switchyard
