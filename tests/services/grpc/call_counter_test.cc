#include "services/grpc/call_counter.h"

#include <chrono>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// Answers GetVersion, refuses GetPlan, and holds WatchPlan open until the call is canceled.
class Fake final : public v1::CoordinatorService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* /*request*/,
                                       v1::GetVersionResponse* /*response*/) override {
    return Answer(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context,
                                    const v1::GetPlanRequest* /*request*/,
                                    v1::GetPlanResponse* /*response*/) override {
    return Answer(context, {grpc::StatusCode::NOT_FOUND, "none"});
  }
  grpc::ServerWriteReactor<v1::WatchPlanResponse>* WatchPlan(
      grpc::CallbackServerContext* /*context*/, const v1::WatchPlanRequest* /*request*/) override {
    class Open final : public grpc::ServerWriteReactor<v1::WatchPlanResponse> {
     public:
      Open() { StartSendInitialMetadata(); }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Open();
  }

 private:
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
};

class CallCounterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GrpcServerOptions options;
    options.calls = calls_;
    SY_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start(options, {&fake_}));
    channel_ = MakeGrpcChannel(server_->endpoint(), 1 << 20);
    stub_ = v1::CoordinatorService::NewStub(channel_);
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(GrpcDeadline(std::chrono::seconds(5)));
  }
  // Of calls that have all ended.
  std::vector<CallCounts> FinalCounts() {
    server_->Shutdown(std::chrono::seconds(5));
    return calls_->Counts();
  }

  const std::shared_ptr<CallCounter> calls_ = std::make_shared<CallCounter>();
  Fake fake_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

TEST_F(CallCounterTest, CountsByMethodAndCode) {
  EXPECT_THAT(calls_->Counts(), ::testing::IsEmpty());
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetVersionResponse response;
    SY_ASSERT_OK(StatusFromGrpc(stub_->GetVersion(&context, v1::GetVersionRequest(), &response)));
  }
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetPlanResponse response;
  EXPECT_EQ(stub_->GetPlan(&context, v1::GetPlanRequest(), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);

  const std::vector<CallCounts> all = FinalCounts();

  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].service, "switchyard.v1.CoordinatorService");
  EXPECT_EQ(all[0].method, "GetPlan");
  EXPECT_EQ(all[0].started, 1U);
  EXPECT_EQ(all[0].handled[grpc::StatusCode::NOT_FOUND], 1U);
  EXPECT_EQ(all[1].method, "GetVersion");
  EXPECT_STREQ(all[1].type, "unary");
  EXPECT_EQ(all[1].started, 3U);
  EXPECT_EQ(all[1].handled[grpc::StatusCode::OK], 3U);
  EXPECT_EQ(all[1].seconds.count(), 3U);
  EXPECT_GT(all[1].seconds.sum, 0U);
}

TEST_F(CallCounterTest, AStreamIsStartedLongBeforeItIsHandled) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = stub_->WatchPlan(&context, v1::WatchPlanRequest());
  stream->WaitForInitialMetadata();

  const std::vector<CallCounts> open = calls_->Counts();
  context.TryCancel();
  const std::vector<CallCounts> ended = FinalCounts();

  ASSERT_EQ(open.size(), 1U);
  EXPECT_STREQ(open[0].type, "server_stream");
  EXPECT_EQ(open[0].started, 1U);
  EXPECT_EQ(open[0].seconds.count(), 0U);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].handled[grpc::StatusCode::CANCELLED], 1U);
  EXPECT_EQ(ended[0].seconds.count(), 1U);
}

TEST(StatusCodeLabelTest, IsThatOfOtherPrograms) {
  EXPECT_STREQ(StatusCodeLabel(grpc::StatusCode::OK), "OK");
  EXPECT_STREQ(StatusCodeLabel(grpc::StatusCode::CANCELLED), "Canceled");
  EXPECT_STREQ(StatusCodeLabel(grpc::StatusCode::DEADLINE_EXCEEDED), "DeadlineExceeded");
  EXPECT_STREQ(StatusCodeLabel(grpc::StatusCode::UNAVAILABLE), "Unavailable");
  EXPECT_STREQ(StatusCodeLabel(grpc::StatusCode::UNAUTHENTICATED), "Unauthenticated");
}

}  // namespace
}  // namespace switchyard
