#include <functional>
#include <memory>

#include "gtest/gtest.h"

#include "services/channels/grpc_channels.h"
#include "services/convert/step.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
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

using ForwardServerStream = grpc::ServerReaderWriter<v1::ForwardResponse, v1::ForwardRequest>;

class FakeGateway final : public v1::ExpertService::Service {
 public:
  using Script = std::function<grpc::Status(ForwardServerStream*)>;
  explicit FakeGateway(Script script) : script_(std::move(script)) {
    GrpcServerOptions options;
    options.message_bytes_max = kStepMessageBytesMax;
    absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(options, {this});
    EXPECT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
    channel_ = MakeGrpcStepChannel();
  }
  ~FakeGateway() override { server_->Shutdown(Duration{}); }

  grpc::Status Forward(grpc::ServerContext* /*context*/, ForwardServerStream* stream) override {
    return script_(stream);
  }
  StepChannel& channel() { return *channel_; }
  [[nodiscard]] std::string endpoint() const { return server_->endpoint(); }

 private:
  const Script script_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<StepChannel> channel_;
};

class StepLog final : public StepSink {
 public:
  explicit StepLog(SinkLog* log) : log_(log) {}
  void OnOpened(const GatewayGrant& grant) override {
    log_->Add(absl::StrCat("opened ", grant.worker_id, " ", grant.credits));
  }
  void OnNews(const GatewayNews& news) override {
    log_->Add(absl::StrCat("news epoch ", news.plan.has_value() ? news.plan->plan.epoch.value : 0,
                           news.leaving ? " leaving" : ""));
  }
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) override {
    log_->Add(absl::StrCat("step ", step.value, " ", Brief(status), " ",
                           std::string(reinterpret_cast<const char*>(y.data()), y.size())));
  }
  void OnEnded(const absl::Status& why) override { log_->Add("ended " + Brief(why)); }

 private:
  SinkLog* const log_;
};

TEST(GrpcStepChannelTest, StepsAreAnsweredInAnyOrder) {
  RandomMessages random(1);
  const OpenSessionRequest order = random.Order();
  const GatewayGrant grant{random.Grant(), 4, "w0"};
  FakeGateway gateway([&](ForwardServerStream* stream) {
    v1::ForwardRequest open;
    EXPECT_TRUE(stream->Read(&open));
    const absl::StatusOr<ForwardMessage> opened = FromProto(open);
    EXPECT_TRUE(opened.ok() && std::get<OpenSessionRequest>(*opened) == order);
    stream->Write(ForwardOpened(grant));
    v1::ForwardRequest first;
    v1::ForwardRequest second;
    EXPECT_TRUE(stream->Read(&first) && stream->Read(&second));
    const absl::StatusOr<ForwardMessage> one = FromProto(first);
    const absl::StatusOr<ForwardMessage> two = FromProto(second);
    const GatewayStep& step = std::get<ReceivedStep>(*two).step;
    EXPECT_EQ(step.layer, LayerId{5});
    EXPECT_EQ(step.tokens, 2);
    EXPECT_EQ(step.ids.size(), 4U);
    EXPECT_EQ(step.weights[3], 0.75F);
    stream->Write(ForwardResult({step.step, absl::OkStatus(), step.x}));
    stream->Write(ForwardResult(
        {std::get<ReceivedStep>(*one).step.step,
         MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline, "worker w1"),
         {}}));
    return grpc::Status::OK;
  });
  SinkLog log;
  StepLog sink(&log);

  const auto stream = gateway.channel().Open(gateway.endpoint(), order, &sink);
  const std::string x = "the rows of x";
  const std::vector<std::int32_t> ids{1, 2, 3, -1};
  const std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.75F};
  GatewayStep step{StepId{10}, LayerId{5}, 2, std::as_bytes(std::span(x)), ids, weights};
  SY_ASSERT_OK(stream->Submit(step));
  step.step = StepId{11};
  SY_ASSERT_OK(stream->Submit(step));

  ASSERT_TRUE(log.WaitForLast("ended"));
  EXPECT_EQ(log.lines(), (std::vector<std::string>{
                             "opened w0 4", "step 11 OK REASON_UNSPECIFIED the rows of x",
                             "step 10 UNAVAILABLE STEP_DEADLINE ", "ended OK REASON_UNSPECIFIED"}));
  EXPECT_THAT(stream->Submit(step), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST(GrpcStepChannelTest, AStepOverTheLimitIsRefusedAndTheStreamGoesOn) {
  FakeGateway gateway([](ForwardServerStream* stream) {
    v1::ForwardRequest request;
    while (stream->Read(&request)) {
      if (request.has_step()) {
        stream->Write(ForwardResult({StepId{request.step().step()}, absl::OkStatus(), {}}));
      }
    }
    return grpc::Status::OK;
  });
  SinkLog log;
  StepLog sink(&log);
  const auto stream = gateway.channel().Open(gateway.endpoint(), {}, &sink);
  const std::vector<std::byte> too_large(kStepMessageBytesMax, std::byte{7});
  GatewayStep step{StepId{1}, LayerId{0}, 1, too_large, {}, {}};

  const absl::Status refused = stream->Submit(step);
  step.x = std::span(too_large).first(kStepMessageBytesMax - kStepHeaderBytesMax);
  const absl::Status taken = stream->Submit(step);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
  SY_EXPECT_OK(taken);
  EXPECT_TRUE(log.WaitForLast("step 1 OK"));
}

TEST(GrpcStepChannelTest, AnAnswerOfTheLargestSizeArrives) {
  FakeGateway gateway([](ForwardServerStream* stream) {
    v1::ForwardRequest request;
    stream->Read(&request);
    const std::vector<std::byte> y(kStepMessageBytesMax - kStepHeaderBytesMax, std::byte{'y'});
    stream->Write(ForwardResult({StepId{3}, absl::OkStatus(), y}));
    return grpc::Status::OK;
  });
  SinkLog log;
  StepLog sink(&log);

  const auto stream = gateway.channel().Open(gateway.endpoint(), {}, &sink);

  ASSERT_TRUE(log.WaitForLast("ended OK"));
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_GT(log.lines()[0].size(), kStepMessageBytesMax - kStepHeaderBytesMax);
}

TEST(GrpcStepChannelTest, ARefusedSessionEndsWithItsReason) {
  FakeGateway gateway([](ForwardServerStream* /*stream*/) {
    return StatusToGrpc(
        MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no model x"));
  });
  SinkLog log;
  StepLog sink(&log);

  const auto stream = gateway.channel().Open(gateway.endpoint(), {}, &sink);

  EXPECT_TRUE(log.WaitForLast("ended NOT_FOUND UNKNOWN_MODEL"));
}

TEST(GrpcStepChannelTest, AGatewayThatIsNotThereIsWorkerLost) {
  std::string endpoint;
  {
    FakeGateway gone([](ForwardServerStream* /*stream*/) { return grpc::Status::OK; });
    endpoint = gone.endpoint();
  }
  SinkLog log;
  StepLog sink(&log);
  const auto channel = MakeGrpcStepChannel();

  const auto stream = channel->Open(endpoint, {}, &sink);

  EXPECT_TRUE(log.WaitForLast("ended UNAVAILABLE WORKER_LOST"));
}

// gRPC frees the queue of all callbacks with the last channel: none may be under way then.
TEST(GrpcStepChannelTest, MayGoAsSoonAsItsStreamsHaveGone) {
  RandomMessages random(8);
  FakeGateway gateway([](ForwardServerStream* stream) {
    v1::ForwardRequest request;
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  });
  SinkLog log;
  StepLog sink(&log);
  for (int i = 0; i < 100; ++i) {
    std::unique_ptr<StepChannel> channel = MakeGrpcStepChannel();
    std::unique_ptr<StepStream> stream = channel->Open(gateway.endpoint(), random.Order(), &sink);

    stream.reset();
    channel.reset();
  }

  EXPECT_TRUE(log.lines().empty()) << "a stream that was let go tells nothing";
}

}  // namespace
}  // namespace switchyard
