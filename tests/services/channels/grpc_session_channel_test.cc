#include <functional>
#include <memory>

#include "gtest/gtest.h"

#include "services/channels/grpc_channels.h"
#include "services/convert/attach.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "tests/services/convert/random_messages.h"
#include "tests/services/sink_log.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Brief;
using testing::FailsWith;
using testing::RandomMessages;
using testing::SinkLog;

using AttachServerStream = grpc::ServerReaderWriter<v1::AttachResponse, v1::AttachRequest>;
using WatchServerStream = grpc::ServerWriter<v1::WatchPlanResponse>;

// One process that plays coordinator and worker as the test says.
struct Fakes {
  struct Coordinator final : v1::CoordinatorService::Service {
    std::function<grpc::Status(grpc::ServerContext*, const v1::OpenSessionRequest&,
                               v1::OpenSessionResponse*)>
        open;
    std::function<grpc::Status(const v1::WatchPlanRequest&, WatchServerStream*)> watch;
    std::string closed;

    grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                             v1::OpenSessionResponse* response) override {
      return open(context, *request, response);
    }
    grpc::Status CloseSession(grpc::ServerContext* /*context*/,
                              const v1::CloseSessionRequest* request,
                              v1::CloseSessionResponse* /*response*/) override {
      closed = request->session_id();
      return grpc::Status::OK;
    }
    grpc::Status WatchPlan(grpc::ServerContext* /*context*/, const v1::WatchPlanRequest* request,
                           WatchServerStream* writer) override {
      return watch(*request, writer);
    }
  } coordinator;
  struct Worker final : v1::ExpertService::Service {
    std::function<grpc::Status(AttachServerStream*)> attach;
    std::function<grpc::Status(const v1::GetStatusRequest&, v1::GetStatusResponse*)> get_status;

    grpc::Status Attach(grpc::ServerContext* /*context*/, AttachServerStream* stream) override {
      return attach(stream);
    }
    grpc::Status GetStatus(grpc::ServerContext* /*context*/, const v1::GetStatusRequest* request,
                           v1::GetStatusResponse* response) override {
      return get_status(*request, response);
    }
  } worker;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<SessionChannel> channel;

  void Start() {
    absl::StatusOr<std::unique_ptr<GrpcServer>> started =
        GrpcServer::Start({}, {&coordinator, &worker});
    ASSERT_THAT(started, testing::IsOk());
    server = *std::move(started);
    channel = MakeGrpcSessionChannel(server->endpoint());
  }
};

class WatchLog final : public WatchSink {
 public:
  explicit WatchLog(SinkLog* log) : log_(log) {}
  void OnPlan(const PlanUpdate& news) override {
    log_->Add(absl::StrCat("plan ", news.plan.epoch.value, " ", news.hash.ToHex()));
  }
  void OnWatchEnded(const absl::Status& why) override { log_->Add("ended " + Brief(why)); }

 private:
  SinkLog* const log_;
};

class AttachLog final : public AttachSink {
 public:
  explicit AttachLog(SinkLog* log) : log_(log) {}
  void OnAttached(const AttachGrant& grant) override {
    log_->Add(absl::StrCat("attached ", grant.request_ring.attachment.value, " ", grant.path));
  }
  void OnBound(Epoch epoch, const absl::Status& result) override {
    log_->Add(absl::StrCat("bound ", epoch.value, " ", Brief(result)));
  }
  void OnAttachEnded(const absl::Status& why) override { log_->Add("ended " + Brief(why)); }

 private:
  SinkLog* const log_;
};

TEST(GrpcSessionChannelTest, OpensAndClosesASession) {
  Fakes fakes;
  RandomMessages random(1);
  const OpenSessionRequest order = random.Order();
  const SessionGrant grant = random.Grant();
  fakes.coordinator.open = [&](auto* /*context*/, const auto& request, auto* response) {
    const absl::StatusOr<OpenSessionRequest> asked = FromProto(request);
    EXPECT_TRUE(asked.ok() && *asked == order);
    *response = ToProto(grant);
    return grpc::Status::OK;
  };
  fakes.Start();

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant granted,
                          fakes.channel->OpenSession(order, std::chrono::seconds(5)));
  SY_EXPECT_OK(fakes.channel->CloseSession(granted.session, std::chrono::seconds(5)));

  EXPECT_EQ(granted, grant);
  EXPECT_EQ(fakes.coordinator.closed, ToHex(grant.session));
}

TEST(GrpcSessionChannelTest, ARefusalArrivesWithItsReason) {
  Fakes fakes;
  fakes.coordinator.open = [](auto*, const auto&, auto*) {
    return StatusToGrpc(
        MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no model x"));
  };
  fakes.Start();

  EXPECT_THAT(fakes.channel->OpenSession({}, std::chrono::seconds(5)),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST(GrpcSessionChannelTest, ACoordinatorThatDoesNotAnswerIsLostAtTheTimeOut) {
  Fakes fakes;
  fakes.coordinator.open = [](grpc::ServerContext* context, const auto&, auto*) {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    while (!context->IsCancelled()) changed.wait_for(lock, std::chrono::milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  fakes.Start();

  EXPECT_THAT(fakes.channel->OpenSession({}, std::chrono::milliseconds(100)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
}

TEST(GrpcSessionChannelTest, NobodyThereIsCoordinatorLostOrWorkerLost) {
  Fakes fakes;
  fakes.Start();
  const std::string endpoint = fakes.server->endpoint();
  fakes.server.reset();

  const auto channel = MakeGrpcSessionChannel(endpoint);
  EXPECT_THAT(channel->OpenSession({}, std::chrono::seconds(5)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
  EXPECT_THAT(channel->GetCounters(endpoint, SessionId{}, std::chrono::seconds(5)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  SinkLog log;
  AttachLog sink(&log);
  const auto stream = channel->Attach(endpoint, AttachRequest{}, &sink);
  ASSERT_TRUE(log.WaitFor(1));
  EXPECT_EQ(log.lines(), std::vector<std::string>{"ended UNAVAILABLE WORKER_LOST"});
}

TEST(GrpcSessionChannelTest, WithoutACoordinatorItAsksWorkersAlone) {
  Fakes fakes;
  fakes.worker.get_status = [](const v1::GetStatusRequest& /*request*/,
                               v1::GetStatusResponse* response) {
    response->set_worker_id("w7");
    return grpc::Status::OK;
  };
  fakes.Start();
  const auto channel = MakeGrpcSessionChannel("");
  SinkLog log;
  WatchLog sink(&log);

  SY_ASSERT_OK_AND_ASSIGN(
      const SessionCounters counters,
      channel->GetCounters(fakes.server->endpoint(), SessionId{1, 2}, std::chrono::seconds(5)));
  const auto opened = channel->OpenSession({}, std::chrono::seconds(5));
  const absl::Status closed = channel->CloseSession(SessionId{1, 2}, std::chrono::seconds(5));
  const auto watch = channel->Watch({}, &sink);

  EXPECT_EQ(counters.worker_id, "w7");
  EXPECT_THAT(opened, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(closed, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(log.lines(), std::vector<std::string>{"ended INVALID_ARGUMENT BAD_REQUEST"});
}

TEST(GrpcSessionChannelTest, WatchBringsNewsAndItsEnd) {
  Fakes fakes;
  RandomMessages random(2);
  const WatchRequest order = random.Watch();
  const PlanUpdate first = random.News();
  const PlanUpdate second = random.News();
  fakes.coordinator.watch = [&](const v1::WatchPlanRequest& request, WatchServerStream* writer) {
    const absl::StatusOr<WatchRequest> asked = FromProto(request);
    EXPECT_TRUE(asked.ok() && *asked == order);
    writer->Write(ToProto(first));
    writer->Write(ToProto(second));
    return StatusToGrpc(MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession, "closed"));
  };
  fakes.Start();
  SinkLog log;
  WatchLog sink(&log);

  const auto stream = fakes.channel->Watch(order, &sink);

  ASSERT_TRUE(log.WaitForLast("ended"));
  EXPECT_EQ(log.lines(),
            (std::vector<std::string>{
                absl::StrCat("plan ", first.plan.epoch.value, " ", first.hash.ToHex()),
                absl::StrCat("plan ", second.plan.epoch.value, " ", second.hash.ToHex()),
                "ended NOT_FOUND UNKNOWN_SESSION"}));
}

TEST(GrpcSessionChannelTest, AttachBindAndReleaseArriveInOrderAndAreAnswered) {
  Fakes fakes;
  RandomMessages random(3);
  const AttachRequest order = random.Attach();
  const Sha256Digest hash = random.Digest();
  SinkLog server_log;
  fakes.worker.attach = [&](AttachServerStream* stream) {
    v1::AttachRequest request;
    while (stream->Read(&request)) {
      const absl::StatusOr<AttachMessage> message = FromProto(request);
      EXPECT_THAT(message, testing::IsOk());
      if (const auto* attach = std::get_if<AttachRequest>(&*message)) {
        server_log.Add(*attach == order ? "attach" : "another attach");
        AttachGrant grant{RingOffer{}, "mapped", ""};
        grant.request_ring.attachment = AttachmentId{77};
        stream->Write(ToProto(AttachAnswer(grant)));
      } else if (const auto* bind = std::get_if<BindRequest>(&*message)) {
        server_log.Add(absl::StrCat("bind ", bind->epoch.value));
        BindAnswer answer{bind->epoch, absl::OkStatus()};
        if (bind->epoch.value > 3) {
          answer.result =
              MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "x");
        }
        stream->Write(ToProto(AttachAnswer(answer)));
      } else {
        server_log.Add(absl::StrCat("release ", std::get<ReleaseRequest>(*message).epoch.value));
      }
    }
    server_log.Add("end");
    return grpc::Status::OK;
  };
  fakes.Start();
  SinkLog log;
  AttachLog sink(&log);

  auto stream = fakes.channel->Attach(fakes.server->endpoint(), order, &sink);
  stream->Bind({Epoch{3}, hash});
  stream->Bind({Epoch{4}, hash});
  stream->Release({Epoch{2}});

  ASSERT_TRUE(log.WaitFor(3));
  EXPECT_EQ(log.lines(),
            (std::vector<std::string>{"attached 77 mapped", "bound 3 OK REASON_UNSPECIFIED",
                                      "bound 4 FAILED_PRECONDITION STALE_EPOCH"}));
  ASSERT_TRUE(server_log.WaitFor(4));
  stream.reset();
  ASSERT_TRUE(server_log.WaitForLast("end"));  // The stream's end is the attachment's.
  EXPECT_EQ(server_log.lines(),
            (std::vector<std::string>{"attach", "bind 3", "bind 4", "release 2", "end"}));
}

TEST(GrpcSessionChannelTest, ARefusedAttachEndsWithTheWorkersReason) {
  Fakes fakes;
  fakes.worker.attach = [](AttachServerStream* /*stream*/) {
    return StatusToGrpc(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                                  "asked for shm, got tcp"));
  };
  fakes.Start();
  SinkLog log;
  AttachLog sink(&log);

  const auto stream = fakes.channel->Attach(fakes.server->endpoint(), AttachRequest{}, &sink);

  EXPECT_TRUE(log.WaitForLast("ended FAILED_PRECONDITION TRANSPORT"));
}

TEST(GrpcSessionChannelTest, CountersComeWithTheWorkersName) {
  Fakes fakes;
  RandomMessages random(4);
  AttachmentCounters counters = random.Counters();
  fakes.worker.get_status = [&](const v1::GetStatusRequest& request,
                                v1::GetStatusResponse* response) {
    EXPECT_EQ(request.session_id(), ToHex(counters.session));
    response->set_worker_id("w3");
    Encode(counters, response->add_attachments());
    return grpc::Status::OK;
  };
  fakes.Start();

  SY_ASSERT_OK_AND_ASSIGN(const SessionCounters got,
                          fakes.channel->GetCounters(fakes.server->endpoint(), counters.session,
                                                     std::chrono::seconds(5)));

  counters.worker_id = "w3";
  EXPECT_EQ(got.worker_id, "w3");
  ASSERT_EQ(got.attachments.size(), 1U);
  EXPECT_EQ(got.attachments[0], counters);
}

}  // namespace
}  // namespace switchyard
