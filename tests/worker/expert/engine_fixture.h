// One worker's engine on fake devices and a fake transport, and sources to talk to it.
#pragma once

#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_engine.h"

namespace switchyard::testing {

class EngineFixture : public ::testing::Test {
 protected:
  // Worker "w1" of two, epoch 1 committed.
  EngineFixture() {
    options_.identity = {.worker_id = "w1", .incarnation = IncarnationOf(1)};
    options_.on_closed = [this](AttachmentId number, const absl::Status& why) {
      closed_.emplace_back(number, why);
    };
    Restart();
  }

  // Anew with options_.
  void Restart() {
    engine_ =
        std::make_unique<ExpertEngine>(options_, &transport_, *ExpertStreams::Create(&device_, {}));
    Commit(1);
  }
  Plan Commit(std::uint64_t epoch) {
    Plan plan = MakePlan(epoch, 2);
    engine_->Activate(MakeStaged(1, plan, &device_));
    return plan;
  }

  struct Source {
    AttachRequest order;
    AttachGrant grant;
    FakeLink* link = nullptr;
  };
  Source Attach(DispatchMode mode, std::uint64_t session = 1, std::uint64_t epoch = 1,
                Duration step_deadline = {}) {
    Source source;
    source.order = MakeAttachRequest(MakePlan(epoch, 2), mode, session);
    source.order.step_deadline = step_deadline;
    auto grant = engine_->Attach(source.order);
    SY_EXPECT_OK(grant);
    if (!grant.ok()) std::abort();
    source.grant = *std::move(grant);
    source.link = transport_.Find(source.grant.request_ring.attachment);
    return source;
  }
  // A request of `tokens` random tokens to layer 0 or 1.
  TestRequest Request(const Source& source, std::uint64_t seed, std::uint16_t slot = 0,
                      std::int32_t layer = 0, std::int32_t tokens = 5) {
    SeededRng rng(seed);
    const TestLayer test = LayerOf(MakePlan(source.order.epoch.value, 2), LayerId{layer});
    step_ = MakeTestStep(rng, test, tokens, source.order.mode, 0.0);
    return MakeRequest(source.order, source.grant, test, step_, WorkerOrdinal{1}, slot);
  }
  void Deliver(const Source& source, const TestRequest& request) {
    transport_.Deliver(source.link, request.header.request_slot, Encode(request));
  }
  // The next reply, read; fails the test when there is none.
  ReadReply Next() {
    const auto reply = transport_.TakeReply();
    EXPECT_TRUE(reply.has_value()) << "no reply was sent";
    if (!reply) return {};
    last_sender_ = reply->sender;
    last_slot_ = reply->slot;
    return Read(*reply, TestModel().shape.hidden);
  }
  void ExpectServed(const Source& source, const TestRequest& request) {
    Deliver(source, request);
    engine_->Poll(now_);
    const ReadReply reply = Next();
    EXPECT_EQ(reply.header.kind, FrameKind::kResult) << reply.error.text;
    EXPECT_EQ(reply.rows, request.expected);
  }
  // Refused with that code and reason, and nothing else is sent.
  ReadReply ExpectRefused(const Source& source, const TestRequest& request, absl::StatusCode code,
                          Reason reason) {
    Deliver(source, request);
    engine_->Poll(now_);
    ReadReply reply = Next();
    EXPECT_EQ(reply.header.kind, FrameKind::kError);
    EXPECT_EQ(reply.damage, FrameDrop::kNone);
    EXPECT_EQ(reply.error.code, code) << reply.error.text;
    EXPECT_EQ(reply.error.reason, static_cast<std::uint32_t>(reason)) << reply.error.text;
    EXPECT_EQ(transport_.TakeReply(), std::nullopt);
    return reply;
  }
  [[nodiscard]] std::uint64_t Drops(FrameDrop drop) const {
    return transport_.stats().drops[static_cast<std::size_t>(drop)];
  }

  FakeDevice device_;
  FakeTransport transport_;
  ExpertEngineOptions options_;
  std::vector<std::pair<AttachmentId, absl::Status>> closed_;
  TimePoint now_{std::chrono::seconds(100)};
  TestStep step_;  // of the last Request
  AttachmentId last_sender_;
  std::uint32_t last_slot_ = 0;
  std::unique_ptr<ExpertEngine> engine_;
};

inline constexpr DispatchMode kBothModes[] = {DispatchMode::kNormal, DispatchMode::kLowLatency};

}  // namespace switchyard::testing
