#include "services/worker/worker_server.h"

#include "services/convert/step.h"
#include "services/grpc/grpc_status.h"
#include "tests/services/worker_fixture.h"
#include "tests/testing/fake_runner.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::AttachLog;
using testing::FailsWith;
using testing::LayerOf;
using testing::MakePlan;
using testing::MakeRequest;
using testing::MakeTestStep;
using testing::TestLayer;
using testing::TestRequest;

class WorkerServerTest : public testing::WorkerFixture {
 protected:
  absl::StatusOr<v1::GetStatusResponse> GetStatus(const std::string& session,
                                                  bool metrics = false) {
    const auto stub =
        v1::ExpertService::NewStub(MakeGrpcChannel(endpoint_, kControlMessageBytesMax));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    v1::GetStatusRequest request;
    request.set_session_id(session);
    request.set_metrics(metrics);
    v1::GetStatusResponse response;
    const absl::Status status = StatusFromGrpc(stub->GetStatus(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
};

TEST_F(WorkerServerTest, CountersAreThoseOfTheSessionAsked) {
  const std::uint64_t seed = 5;
  SeededRng rng(seed);
  Commit(1);
  const AttachRequest order = Order(1, 1);
  AttachLog sink;
  AttachLog other;
  const auto stream = Attach(order, &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));
  const auto other_stream = Attach(Order(1, 2), &other);
  ASSERT_TRUE(other.log.WaitForLast("attached"));
  const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{0});
  AttachGrant grant;
  grant.request_ring.attachment = sink.attachment;
  const TestRequest request = MakeRequest(
      order, grant, layer, MakeTestStep(rng, layer, 5, order.mode, 0.0), WorkerOrdinal{1});
  transport_.Deliver(transport_.Find(sink.attachment), 0, testing::Encode(request));
  ASSERT_TRUE(transport_.TakeReply(seconds(20)).has_value());

  SY_ASSERT_OK_AND_ASSIGN(const SessionCounters counters,
                          channel_->GetCounters(endpoint_, order.session, seconds(5)));
  SY_ASSERT_OK_AND_ASSIGN(const SessionCounters others,
                          channel_->GetCounters(endpoint_, {1, 2}, seconds(5)));

  EXPECT_EQ(counters.worker_id, "w1");
  ASSERT_EQ(counters.attachments.size(), 1U);
  EXPECT_EQ(counters.attachments[0].session, order.session);
  EXPECT_EQ(counters.attachments[0].rows, request.header.rows) << "seed " << seed;
  EXPECT_EQ(counters.attachments[0].frames, 1U);
  EXPECT_FALSE(counters.attachments[0].hits.empty());
  ASSERT_EQ(others.attachments.size(), 1U);
  EXPECT_EQ(others.attachments[0].rows, 0U);
}

TEST_F(WorkerServerTest, StatusShowsTheWorkerItself) {
  Commit(1);
  AttachLog sink;
  const auto stream = Attach(Order(1), &sink);
  ASSERT_TRUE(sink.log.WaitForLast("attached"));
  transport_.CountDrop(FrameDrop::kCrc);

  SY_ASSERT_OK_AND_ASSIGN(const v1::GetStatusResponse status, GetStatus(""));

  EXPECT_EQ(status.worker_id(), "w1");
  EXPECT_EQ(status.incarnation(), ToHex(testing::IncarnationOf(1)));
  EXPECT_EQ(status.attachments_size(), 0);
  ASSERT_EQ(status.epochs_size(), 1);
  EXPECT_EQ(status.epochs(0).epoch(), 1U);
  EXPECT_TRUE(status.epochs(0).committed());
  EXPECT_EQ(status.experts().attachments(), 1U);
  ASSERT_EQ(status.transport().drops_size(), 1);
  EXPECT_EQ(status.transport().drops(0).reason(), std::string(FrameDropName(FrameDrop::kCrc)));
  EXPECT_EQ(status.transport().drops(0).frames(), 1U);
}

TEST_F(WorkerServerTest, GivesMetricsOnRequestForAsLongAsSomebodyCollectsThem) {
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetStatusResponse before, GetStatus("", true));
  EXPECT_EQ(before.metrics_size(), 0);

  server_->ServeMetrics([] {
    MetricsText page;
    page.Begin(MetricType::kCounter, "rows_total", "Rows.").Add(3.0);
    return page.families();
  });
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetStatusResponse with, GetStatus("", true));
  ASSERT_EQ(with.metrics_size(), 1);
  EXPECT_EQ(with.metrics(0).name(), "rows_total");
  EXPECT_EQ(with.metrics(0).samples(0).value(), 3);
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetStatusResponse without, GetStatus(""));
  EXPECT_EQ(without.metrics_size(), 0);

  server_->ServeMetrics(nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const v1::GetStatusResponse after, GetStatus("", true));
  EXPECT_EQ(after.metrics_size(), 0);
}

TEST_F(WorkerServerTest, AnUnknownOrMalformedSessionIsRefused) {
  EXPECT_THAT(channel_->GetCounters(endpoint_, {3, 4}, seconds(5)),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  EXPECT_THAT(GetStatus("not hex"),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST_F(WorkerServerTest, AWorkerWithoutASourceIsNoGateway) {
  class Sink final : public StepSink {
   public:
    void OnOpened(const GatewayGrant& /*grant*/) override { log.Add("opened"); }
    void OnNews(const GatewayNews& /*news*/) override {}
    void OnStep(StepId /*step*/, const absl::Status& /*status*/,
                std::span<const std::byte> /*y*/) override {}
    void OnEnded(const absl::Status& why) override { log.Add("ended " + testing::Brief(why)); }
    testing::SinkLog log;
  } sink;
  const auto steps = MakeGrpcStepChannel();

  const auto stream = steps->Open(endpoint_, {}, &sink);

  EXPECT_TRUE(sink.log.WaitForLast("ended UNIMPLEMENTED UNSUPPORTED"));
}

TEST_F(WorkerServerTest, StepsGoThroughTheGateway) {
  testing::GrantingChannel refusing([](const OpenSessionRequest&) -> absl::StatusOr<SessionGrant> {
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "asked");
  });
  SteadyClock clock;
  SourceOptions source;
  source.coordinator = &refusing;
  source.clock = &clock;
  SourcePool gateway(Source::Create(std::move(source)), nullptr);
  WorkerServerOptions options;
  options.worker_id = "w2";
  SY_ASSERT_OK_AND_ASSIGN(const auto server,
                          WorkerServer::Start(options, experts_.get(), nullptr, &gateway));
  const auto stub = v1::ExpertService::NewStub(
      MakeGrpcChannel(server->grpc().endpoint(), kControlMessageBytesMax));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));

  const auto stream = stub->Forward(&context);
  stream->Write(ForwardOpen({}));
  v1::ForwardResponse response;
  EXPECT_FALSE(stream->Read(&response));

  EXPECT_THAT(StatusFromGrpc(stream->Finish()),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(WorkerServerTest, APortInUseIsSaidPlainly) {
  WorkerServerOptions options;
  options.worker_id = "w2";
  options.grpc.port = server_->grpc().port();

  EXPECT_THAT(WorkerServer::Start(options, experts_.get(), nullptr, nullptr),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
}

}  // namespace
}  // namespace switchyard
