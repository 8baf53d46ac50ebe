#include "worker/source/registry/runner_registry.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/late_device.h"
#include "tests/testing/scripted_gateway.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::FailsWith;

SessionGrant GrantOf(Binding binding) {
  SessionGrant grant;
  grant.binding = binding;
  grant.plan.shape = {.hidden = 32, .intermediate = 8, .experts = 4, .top_k = 2};
  return grant;
}

TEST(RunnerRegistryTest, MakesTheRunnerThatTheGrantNames) {
  testing::ScriptedTransport transport;
  testing::ScriptedChannel channel;
  testing::ScriptedGateway gateway;
  RunnerParts parts{
      .channel = &channel, .transport = &transport, .steps = &gateway, .gateways = {"g0"}};
  SY_ASSERT_OK_AND_ASSIGN(parts.device, MakeDevice("cpu:kernel_family=portable_fp32"));
  const RunnerFactory make = MakeRunnerFactory(std::move(parts));

  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, make(GrantOf(Binding::kP2p), [] {}));
  SY_ASSERT_OK_AND_ASSIGN(const auto through, make(GrantOf(Binding::kGateway), [] {}));

  EXPECT_EQ(p2p->Status().gateway_worker, "");
  SY_EXPECT_OK(through->Start({}));
  through->Poll({});
  EXPECT_EQ(through->Status().gateway_worker, "w0");
}

TEST(RunnerRegistryTest, RefusesABindingThatThisProcessCannotRun) {
  const RunnerFactory make = MakeRunnerFactory({});

  for (const Binding binding : {Binding::kP2p, Binding::kGateway}) {
    const auto refused = make(GrantOf(binding), [] {});
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
    EXPECT_EQ(MetadataOf(refused.status()).at("binding"), BindingName(binding));
  }
}

TEST(RunnerRegistryTest, RefusesP2pOnADeviceThatDoesNotReachTheSlots) {
  testing::ScriptedTransport transport;
  testing::ScriptedChannel channel;
  RunnerParts parts{.channel = &channel, .transport = &transport};
  SY_ASSERT_OK_AND_ASSIGN(parts.device,
                          testing::LateDevice::Create({.kernel_family = "portable_fp32"}));
  ASSERT_FALSE(parts.device->host_access());

  const auto refused = MakeRunnerFactory(std::move(parts))(GrantOf(Binding::kP2p), [] {});

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr("host memory"));
}

}  // namespace
}  // namespace switchyard
