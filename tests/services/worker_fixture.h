// A worker's real expert side behind its gRPC server, over a fake transport, and the real session
// channel to reach it.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "services/channels/grpc_channels.h"
#include "services/grpc/grpc_server.h"
#include "services/worker/worker_server.h"
#include "tests/services/sink_log.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_service.h"

namespace switchyard::testing {

class AttachLog final : public AttachSink {
 public:
  void OnAttached(const AttachGrant& grant) override {
    attachment = grant.request_ring.attachment;
    log.Add("attached " + grant.path);
  }
  void OnBound(Epoch epoch, const absl::Status& result) override {
    log.Add(absl::StrCat("bound ", epoch.value, " ", Brief(result)));
  }
  void OnAttachEnded(const absl::Status& why) override { log.Add("ended " + Brief(why)); }

  AttachmentId attachment;  // read it after log has "attached"
  SinkLog log;
};

class WorkerFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    ExpertServiceOptions options;
    options.stager = StagerOf(1, &device_);
    experts_ = *ExpertService::Create(std::move(options), &transport_, &clock_);
    WorkerServerOptions server;
    server.worker_id = "w1";
    server.incarnation = IncarnationOf(1);
    server.data_hosts = {"127.0.0.1"};
    SY_ASSERT_OK_AND_ASSIGN(server_, WorkerServer::Start(server, experts_.get(), nullptr, nullptr));
    endpoint_ = server_->grpc().endpoint();
    channel_ = MakeGrpcSessionChannel(endpoint_);
  }
  void TearDown() override { server_.reset(); }

  // Stages and commits epoch `epoch` of the test plan.
  void Commit(std::uint64_t epoch) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    experts_->StagePlan(MakePrepare(MakePlan(epoch, 2)),
                        [done](const absl::Status& status) { done->set_value(status); });
    SY_ASSERT_OK(done->get_future().get());
    experts_->Activate("demo", Epoch{epoch});
  }
  AttachRequest Order(std::uint64_t epoch, std::uint64_t session = 1) {
    return MakeAttachRequest(MakePlan(epoch, 2), DispatchMode::kNormal, session);
  }
  std::unique_ptr<AttachStream> Attach(const AttachRequest& order, AttachLog* sink) {
    return channel_->Attach(endpoint_, order, sink);
  }
  // Until the worker has `count` attachments, at most 20 s.
  bool WaitForAttachments(std::uint64_t count) {
    const TimePoint end = clock_.Now() + std::chrono::seconds(20);
    while (clock_.Now() < end) {
      const absl::StatusOr<ExpertServiceView> view = experts_->View(std::chrono::seconds(5));
      if (view.ok() && view->experts.attachments == count) return true;
    }
    return false;
  }

  FakeDevice device_;
  FakeTransport transport_;
  SteadyClock clock_;
  std::unique_ptr<ExpertService> experts_;
  std::unique_ptr<WorkerServer> server_;
  std::string endpoint_;
  std::unique_ptr<SessionChannel> channel_;
};

}  // namespace switchyard::testing
