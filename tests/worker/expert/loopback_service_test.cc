// The expert service over a real transport: the source's end of the link is the test's.
#include <algorithm>
#include <chrono>
#include <future>
#include <map>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_service.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/loopback/hub.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::FakeDevice;
using testing::FakeTransport;
using testing::kSourceIncarnation;
using testing::LayerOf;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::MakePrepare;
using testing::MakeRequest;
using testing::MakeTestStep;
using testing::ReadReply;
using testing::StagerOf;
using testing::TestLayer;
using testing::TestRequest;

// Keeps replies as bytes.
class Replies final : public FrameSink {
 public:
  void OnFrame(Link&, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override {
    std::vector<std::byte> frame(raw.begin(), raw.end());
    const auto body = payload.first(header.payload_bytes);
    frame.insert(frame.end(), body.begin(), body.end());
    frames.push_back(std::move(frame));
  }
  void OnLinkDown(Link&, const absl::Status& why) override { down = why; }

  std::vector<std::vector<std::byte>> frames;
  absl::Status down;
};

class LoopbackServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(
        worker_transport_,
        MakeTransport("loopback", {.incarnation = testing::IncarnationOf(1), .hub = &hub_}));
    SY_ASSERT_OK_AND_ASSIGN(
        source_transport_,
        MakeTransport("loopback", {.incarnation = kSourceIncarnation, .hub = &hub_}));
    ExpertServiceOptions options;
    options.stager = StagerOf(1, &device_);
    service_ = *ExpertService::Create(std::move(options), worker_transport_.get(), &clock_);
    std::promise<absl::Status> staged;
    auto done = staged.get_future();
    service_->StagePlan(MakePrepare(MakePlan(1, 2)),
                        [&](absl::Status status) { staged.set_value(std::move(status)); });
    ASSERT_EQ(done.wait_for(30s), std::future_status::ready);
    SY_ASSERT_OK(done.get());
    service_->Activate("demo", Epoch{1});
  }

  void Attach(DispatchMode mode) {
    order_ = MakeAttachRequest(MakePlan(1, 2), mode);
    SY_ASSERT_OK_AND_ASSIGN(
        link_, source_transport_->CreateLink(
                   {.cookie = order_.cookie, .slots = 4, .slot_bytes = 8000, .owner = nullptr}));
    order_.reply_ring = link_->offer();
    SY_ASSERT_OK_AND_ASSIGN(
        grant_, service_->Attach(
                    order_, [this](const absl::Status& why) { closed_.set_value(why); }, 30s));
    SY_ASSERT_OK(link_->Connect(grant_.request_ring));
  }
  TestRequest Request(std::uint64_t seed, std::uint16_t slot) {
    SeededRng rng(seed);
    const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{1});
    return MakeRequest(order_, grant_, layer, MakeTestStep(rng, layer, 5, order_.mode, 0.0),
                       WorkerOrdinal{1}, slot);
  }
  void Send(const TestRequest& request) {
    const std::vector<std::byte> frame = Encode(request);
    const auto slot = link_->OutboundSlot(request.header.request_slot);
    std::copy(frame.begin(), frame.end(), slot.begin());
    SY_ASSERT_OK(link_->Send(request.header.request_slot, frame.size()));
  }
  // Drives the source's end until `count` replies are there.
  bool Await(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (replies_.frames.size() < count && std::chrono::steady_clock::now() < end) {
      if (!source_transport_->Progress(replies_) && source_transport_->Arm()) {
        source_transport_->Wait(5ms);
      }
    }
    return replies_.frames.size() >= count;
  }

  LoopbackHub hub_;
  FakeDevice device_;
  SteadyClock clock_;
  std::unique_ptr<Transport> worker_transport_;
  std::unique_ptr<Transport> source_transport_;
  std::unique_ptr<ExpertService> service_;
  std::promise<absl::Status> closed_;
  std::unique_ptr<Link> link_;
  AttachRequest order_;
  AttachGrant grant_;
  Replies replies_;
};

TEST_F(LoopbackServiceTest, AnswersEveryPairOfBothRings) {
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    Attach(mode);
    EXPECT_EQ(grant_.path, "inproc");
    std::map<std::uint16_t, std::vector<Bf16>> expected;
    for (std::uint16_t slot = 0; slot < 4; ++slot) {
      const TestRequest request = Request(10 + slot, slot);
      expected[slot] = request.expected;
      Send(request);
    }

    ASSERT_TRUE(Await(4));

    for (const auto& frame : replies_.frames) {
      const ReadReply reply =
          Read(FakeTransport::Reply{.sender = {}, .slot = 0, .frame = frame}, 24);
      EXPECT_EQ(reply.damage, FrameDrop::kNone);
      EXPECT_EQ(reply.header.kind, FrameKind::kResult);
      EXPECT_EQ(reply.rows, expected.at(reply.header.reply_slot));
    }
    replies_.frames.clear();
    link_.reset();
    service_->Close(grant_.request_ring.attachment);
  }
}

TEST_F(LoopbackServiceTest, DropsForgedCookiesWithoutAWord) {
  Attach(DispatchMode::kNormal);
  TestRequest forged = Request(20, 0);
  forged.header.cookie.value ^= 1;
  Send(forged);
  const TestRequest honest = Request(21, 1);
  Send(honest);

  ASSERT_TRUE(Await(1));

  const ReadReply reply =
      Read(FakeTransport::Reply{.sender = {}, .slot = 0, .frame = replies_.frames[0]}, 24);
  EXPECT_EQ(reply.header.reply_slot, 1U);
  EXPECT_EQ(reply.rows, honest.expected);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(30s));
  EXPECT_EQ(view.transport.drops[static_cast<std::size_t>(FrameDrop::kCookie)], 1U);
  EXPECT_EQ(view.experts.requests, 1U);
}

TEST_F(LoopbackServiceTest, ASourceThatDiesIsClosedAndItsRingsAreFreed) {
  Attach(DispatchMode::kLowLatency);
  Send(Request(30, 0));
  ASSERT_TRUE(Await(1));

  hub_.Kill(order_.reply_ring.address);

  auto closed = closed_.get_future();
  ASSERT_EQ(closed.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(closed.get().code(), absl::StatusCode::kUnavailable);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(30s));
  EXPECT_EQ(view.experts.attachments, 0U);
  EXPECT_EQ(view.transport.ring_bytes, 0U);
}

}  // namespace
}  // namespace switchyard
