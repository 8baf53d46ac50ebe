#include "client/client.h"

#include "gtest/gtest.h"

#include "tests/testing/scripted_gateway.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;

// A client of a scripted gateway, which the client owns.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClientParts parts;
    parts.sessions = std::make_unique<testing::ScriptedChannel>();
    auto gateway = std::make_unique<testing::ScriptedGateway>();
    gateway_ = gateway.get();
    parts.steps = std::move(gateway);
    SY_ASSERT_OK_AND_ASSIGN(parts.device, CpuBackend::Create({.kernel_family = "portable_fp32"}));
    ClientOptions options;
    options.gateway = "scripted";
    client_ = Client::Over(options, std::move(parts));
  }

  testing::ScriptedGateway* gateway_ = nullptr;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, OpensASessionThroughTheGatewayAndKnowsItsWorker) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client_->Open({}));

  SY_ASSERT_OK_AND_ASSIGN(const std::string worker, session->GatewayWorker());
  EXPECT_EQ(worker, "w0");
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  EXPECT_EQ(grant.plan.epoch, Epoch{1});
  for (const std::uint64_t dropped : client_->transport_stats().drops) EXPECT_EQ(dropped, 0U);
}

TEST_F(ClientTest, AsksAgainWhileTheDeploymentIsNotReady) {
  gateway_->refusals = 2;

  SY_ASSERT_OK(client_->OpenWhenReady({}, std::chrono::seconds(60)));

  EXPECT_EQ(gateway_->opens, 3);
}

TEST_F(ClientTest, GivesUpWhenTheDeploymentIsNotReadyInTime) {
  gateway_->refusals = 1'000'000;

  EXPECT_THAT(client_->OpenWhenReady({}, std::chrono::milliseconds(120)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));

  EXPECT_GE(gateway_->opens, 2);
}

TEST_F(ClientTest, DoesNotAskAgainAfterAnyOtherError) {
  gateway_->refuse = MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such model");

  EXPECT_THAT(client_->OpenWhenReady({}, std::chrono::seconds(60)),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));

  EXPECT_EQ(gateway_->opens, 1);
}

}  // namespace
}  // namespace switchyard
