#include "worker/expert/expert_service.h"

#include <future>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::FailsWith;
using testing::FakeDevice;
using testing::FakeLink;
using testing::FakeTransport;
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

constexpr Duration kSoon = 30s;

// A value that another thread brings.
template <typename T>
class Awaited {
 public:
  void Set(T value) { promise_.set_value(std::move(value)); }
  T Get() {
    auto future = promise_.get_future();
    if (future.wait_for(kSoon) != std::future_status::ready) std::abort();
    return future.get();
  }

 private:
  std::promise<T> promise_;
};

class ExpertServiceTest : public ::testing::Test {
 protected:
  ExpertServiceTest() {
    ExpertServiceOptions options;
    options.stager = StagerOf(1, &device_);
    options.calls_max = 2;
    service_ = *ExpertService::Create(std::move(options), &transport_, &clock_);
  }

  absl::Status Stage(std::uint64_t epoch) {
    Awaited<absl::Status> done;
    service_->StagePlan(MakePrepare(MakePlan(epoch, 2)),
                        [&](absl::Status status) { done.Set(std::move(status)); });
    return done.Get();
  }
  void Commit(std::uint64_t epoch) {
    SY_ASSERT_OK(Stage(epoch));
    service_->Activate("demo", Epoch{epoch});
  }

  struct Source {
    AttachRequest order;
    AttachGrant grant;
    FakeLink* link = nullptr;
  };
  Source Attach(DispatchMode mode, std::uint64_t session = 1, std::uint64_t epoch = 1) {
    Source source;
    source.order = MakeAttachRequest(MakePlan(epoch, 2), mode, session);
    auto grant = service_->Attach(
        source.order, [this](const absl::Status& why) { closed_.Set(why); }, kSoon);
    SY_EXPECT_OK(grant);
    if (!grant.ok()) std::abort();
    source.grant = *std::move(grant);
    source.link = transport_.Find(source.grant.request_ring.attachment);
    return source;
  }
  TestRequest Request(const Source& source, std::uint64_t seed) {
    SeededRng rng(seed);
    const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{0});
    return MakeRequest(source.order, source.grant, layer,
                       MakeTestStep(rng, layer, 5, source.order.mode, 0.0), WorkerOrdinal{1});
  }
  void ExpectServed(const Source& source, std::uint64_t seed) {
    const TestRequest request = Request(source, seed);
    transport_.Deliver(source.link, 0, Encode(request));
    const auto reply = transport_.TakeReply(kSoon);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(Read(*reply, 24).rows, request.expected);
  }

  FakeDevice device_;
  FakeTransport transport_;
  SteadyClock clock_;
  Awaited<absl::Status> closed_;
  std::unique_ptr<ExpertService> service_;
};

// A source that is stopped, and one with large rings, cost the thread of their own Attach, and
// nobody a step.
TEST_F(ExpertServiceTest, ServesOthersWhileAnAttachMakesItsMemoryAndMeetsItsSource) {
  class SlowMemory final : public LinkMemory {
   public:
    void Meet(const RingOffer& peer) override {
      slots = peer.slots;
      meeting.set_value();
      met.get_future().wait();
    }
    std::uint32_t slots = 0;
    std::promise<void> meeting;
    std::promise<void> met;
  };
  Commit(1);
  const Source first = Attach(DispatchMode::kNormal);
  const auto memory = std::make_shared<SlowMemory>();
  std::promise<void> making;
  std::promise<void> made;
  std::weak_ptr<void> counted;
  transport_.on_memory = [&](const LinkOptions& options) {
    EXPECT_EQ(options.slots, first.order.reply_ring.slots);
    EXPECT_EQ(options.slot_bytes, first.order.request_slot_bytes_or_reply());
    EXPECT_TRUE(options.connects_at_once);
    counted = options.until_freed;
    making.set_value();
    made.get_future().wait();
    return memory;
  };
  Source second;
  std::jthread attaches([&] { second = Attach(DispatchMode::kNormal, 2); });
  ASSERT_EQ(making.get_future().wait_for(kSoon), std::future_status::ready);
  EXPECT_FALSE(counted.expired()) << "counted before it is made";
  ExpectServed(first, 3);
  made.set_value();
  ASSERT_EQ(memory->meeting.get_future().wait_for(kSoon), std::future_status::ready);
  ExpectServed(first, 4);

  memory->met.set_value();
  attaches.join();
  ASSERT_NE(second.link, nullptr);
  EXPECT_EQ(memory->slots, second.order.reply_ring.slots);
  EXPECT_EQ(second.link->options.memory, memory);
  EXPECT_EQ(second.link->options.until_freed, counted.lock());
}

TEST_F(ExpertServiceTest, ServesAnEpochFromPrepareToDrop) {
  EXPECT_THAT(
      service_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal), nullptr, kSoon),
      FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  SY_ASSERT_OK(Stage(1));
  EXPECT_THAT(
      service_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal), nullptr, kSoon),
      FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  service_->Activate("demo", Epoch{1});
  const Source source = Attach(DispatchMode::kNormal);
  ExpectServed(source, 1);
  Commit(2);
  SY_ASSERT_OK(service_->Bind(source.grant.request_ring.attachment,
                              {.epoch = Epoch{2}, .hash = HashOf(MakePlan(2, 2))}, kSoon));
  Awaited<bool> unbound;
  service_->Retire("demo", Epoch{1}, [&] { unbound.Set(true); });
  ExpectServed(source, 2);

  SY_ASSERT_OK(service_->Release(source.grant.request_ring.attachment, {.epoch = Epoch{1}}, kSoon));

  EXPECT_TRUE(unbound.Get());
  service_->Drop("demo", Epoch{1});
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(kSoon));
  ASSERT_EQ(view.resident.size(), 1U);
  EXPECT_EQ(view.resident[0].epoch, Epoch{2});
  EXPECT_TRUE(view.resident[0].committed);
  EXPECT_EQ(view.experts.requests, 2U);
  EXPECT_EQ(view.experts.attachments, 1U);
}

TEST_F(ExpertServiceTest, AnAbortedEpochLeavesNothing) {
  SY_ASSERT_OK(Stage(1));

  service_->Drop("demo", Epoch{1});
  service_->Activate("demo", Epoch{1});  // Too late: does nothing.

  EXPECT_THAT(
      service_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal), nullptr, kSoon),
      FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(kSoon));
  EXPECT_TRUE(view.resident.empty());
}

TEST_F(ExpertServiceTest, TellsTheStreamWhenALinkBreaksAndForgetsTheSession) {
  Commit(1);
  const Source source = Attach(DispatchMode::kLowLatency);
  ExpectServed(source, 3);
  SY_ASSERT_OK_AND_ASSIGN(const auto counters, service_->CountersOf(source.order.session, kSoon));
  EXPECT_EQ(counters[0].frames, 1U);
  // To another caller it has none.
  SY_EXPECT_OK(service_->CountersOf(source.order.session, kSoon, source.order.caller).status());
  EXPECT_THAT(service_->CountersOf(source.order.session, kSoon, "spiffe://d/other"),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));

  transport_.Break(source.link);

  EXPECT_EQ(closed_.Get().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(service_->CountersOf(source.order.session, kSoon),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
  EXPECT_THAT(service_->Bind(source.grant.request_ring.attachment, {}, kSoon),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
}

TEST_F(ExpertServiceTest, CloseEndsAnAttachmentWithoutTellingItsStream) {
  Commit(1);
  const Source source = Attach(DispatchMode::kNormal);

  service_->Close(source.grant.request_ring.attachment);

  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(kSoon));
  EXPECT_EQ(view.experts.attachments, 0U);
  EXPECT_EQ(transport_.open_links(), 0U);
  closed_.Set(absl::OkStatus());  // It would throw if the stream had been told.
}

TEST_F(ExpertServiceTest, ACallThatTheDataThreadCannotReachInTimeIsNeverMade) {
  Commit(1);
  const Source source = Attach(DispatchMode::kNormal);
  Awaited<bool> running;
  std::promise<void> go_on;
  device_.on_run = [&, wait = go_on.get_future().share()] {
    running.Set(true);
    wait.wait_for(kSoon);
  };
  transport_.Deliver(source.link, 0, Encode(Request(source, 4)));
  ASSERT_TRUE(running.Get());

  EXPECT_THAT(
      service_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 7), nullptr, 1ms),
      FailsWith(absl::StatusCode::kUnavailable, Reason::kNoCredits));

  go_on.set_value();
  ASSERT_TRUE(transport_.TakeReply(kSoon).has_value());
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(kSoon));
  EXPECT_EQ(view.experts.attachments, 1U);
  device_.on_run = nullptr;
}

TEST_F(ExpertServiceTest, RetireWaitsForDirectSessions) {
  Commit(1);
  const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{0});
  SeededRng rng(5);
  const auto step = MakeTestStep(rng, layer, 4, DispatchMode::kNormal, 0.0);
  const auto chunk =
      testing::MakeChunk(layer, step, WorkerOrdinal{1}, 0, step.plan.workers[1].rows.size());
  const SessionId session{.high = 8, .low = 8};
  const OwnBinding binding{.deployment = "demo",
                           .session = session,
                           .epoch = Epoch{1},
                           .hash = HashOf(MakePlan(1, 2)),
                           .step_deadline = 60s};
  SY_ASSERT_OK(service_->direct().Bind(binding));  // At once after the epoch's activation.
  const OwnChunk direct{.deployment = "demo",
                        .session = session,
                        .epoch = Epoch{1},
                        .hash = HashOf(MakePlan(1, 2)),
                        .layer = LayerId{0},
                        .mode = DispatchMode::kNormal,
                        .format = kBf16Format,
                        .count = static_cast<std::uint32_t>(chunk->planned.size()),
                        .rows = reinterpret_cast<const std::byte*>(chunk->rows.data()),
                        .metadata = std::as_bytes(std::span(chunk->words)),
                        .out = chunk->out.data()};
  const auto run = [&]() -> absl::Status {
    SY_ASSIGN_OR_RETURN(const auto started, service_->direct().Start(direct));
    while (!started->done()) std::this_thread::yield();
    return started->Finish();
  };
  SY_ASSERT_OK(run());
  EXPECT_EQ(chunk->out, testing::ExpectedAnswer(layer, step, WorkerOrdinal{1}, *chunk));
  SY_ASSERT_OK_AND_ASSIGN(const auto counters, service_->CountersOf(session, kSoon));
  EXPECT_EQ(counters[0].rows, chunk->planned.size());
  std::atomic<bool> released{false};
  Awaited<bool> unbound;

  service_->Retire("demo", Epoch{1}, [&] { unbound.Set(released.load()); });

  SY_ASSERT_OK(service_->View(kSoon));
  SY_EXPECT_OK(run());
  released.store(true);
  service_->direct().Close(session);
  EXPECT_TRUE(unbound.Get());
}

// Their deadlines would keep them for more than a minute.
TEST_F(ExpertServiceTest, AnUrgentRetireEndsTheBindingsOfAllSessions) {
  Commit(1);
  AttachRequest order = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal);
  order.step_deadline = 60s;
  SY_ASSERT_OK(service_->Attach(
      order, [this](const absl::Status& why) { closed_.Set(why); }, kSoon));
  const SessionId session{.high = 8, .low = 8};
  SY_ASSERT_OK(service_->direct().Bind({.deployment = "demo",
                                        .session = session,
                                        .epoch = Epoch{1},
                                        .hash = HashOf(MakePlan(1, 2)),
                                        .step_deadline = 60s}));
  Awaited<bool> unbound;
  service_->Retire("demo", Epoch{1}, [&] { unbound.Set(true); });

  service_->ShortenRetire("demo", Epoch{1}, 1ms);

  EXPECT_TRUE(unbound.Get());
  EXPECT_THAT(closed_.Get(), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_FALSE(service_->direct().IsBound("demo", Epoch{1}));
}

TEST_F(ExpertServiceTest, StopWaitsForOpenAttachmentsAndTakesNoNewOnes) {
  Commit(1);
  const Source source = Attach(DispatchMode::kNormal);
  std::thread stopper([this] { service_->Stop(kSoon); });
  absl::Status refused;
  while (refused.ok()) {  // Until the stopper has come to it.
    const auto grant = service_->Attach(MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 2),
                                        nullptr, kSoon);
    refused = grant.status();
    if (grant.ok()) service_->Close(grant->request_ring.attachment);
  }
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnavailable, Reason::kSessionClosed));
  ExpectServed(source, 6);

  service_->Close(source.grant.request_ring.attachment);
  stopper.join();

  EXPECT_THAT(service_->View(kSoon),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kSessionClosed));
  service_->Stop(kSoon);
}

TEST_F(ExpertServiceTest, ProgressGrowsWhileNothingHappens) {
  const std::uint64_t before = service_->MakeHeartbeat().progress;

  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (service_->MakeHeartbeat().progress < before + 3 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }

  EXPECT_GE(service_->MakeHeartbeat().progress, before + 3);
}

TEST_F(ExpertServiceTest, CallsFromManyThreadsWhileFramesFlow) {
  Commit(1);
  const Source source = Attach(DispatchMode::kLowLatency, 99);
  std::vector<std::thread> callers;
  for (std::uint64_t t = 0; t < 2; ++t) {
    callers.emplace_back([this, t] {
      for (std::uint64_t round = 0; round < 20; ++round) {
        const auto grant = service_->Attach(
            MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 100 + t), nullptr, kSoon);
        SY_ASSERT_OK(grant);
        service_->Close(grant->request_ring.attachment);
      }
    });
  }
  for (std::uint64_t seed = 20; seed < 40; ++seed) ExpectServed(source, seed);
  for (std::thread& caller : callers) caller.join();

  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView view, service_->View(kSoon));
  EXPECT_EQ(view.experts.attachments, 1U);
  EXPECT_EQ(view.experts.requests, 20U);
}

}  // namespace
}  // namespace switchyard
