// The expert engine on a device that works late, out of order, in memory of its own, and fails.
#include "tests/testing/late_device.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/failure_scope.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_engine.h"

namespace switchyard {
namespace {

using testing::Encode;
using testing::FakeLink;
using testing::FakeTransport;
using testing::IncarnationOf;
using testing::LateDevice;
using testing::LateDeviceOptions;
using testing::LayerOf;
using testing::MakeAttachRequest;
using testing::MakePlan;
using testing::MakeRequest;
using testing::MakeStaged;
using testing::MakeTestStep;
using testing::Read;
using testing::ReadReply;
using testing::TestLayer;
using testing::TestModel;
using testing::TestRequest;
using testing::TestStep;

class LateEngineTest : public ::testing::Test {
 protected:
  LateEngineTest() { Start({.kernel_family = "scalar"}, {.rows_max = 256, .pairs_max = 64}); }

  void Start(LateDeviceOptions device, const BatchOptions& batch) {
    engine_.reset();
    device_ = *LateDevice::Create(std::move(device));
    ExpertEngineOptions options;
    options.identity = {.worker_id = "w1", .incarnation = IncarnationOf(1)};
    options.batch = batch;
    options.on_device_fault = [this](const absl::Status& why) { faults_.push_back(why); };
    engine_ = std::make_unique<ExpertEngine>(std::move(options), &transport_,
                                             *ExpertStreams::Create(device_.get(), {}));
    StagerOptions stager = testing::StagerOf(1, device_.get());
    stager.batch = batch;
    const Prepare prepare = testing::MakePrepare(MakePlan(1, 2));
    auto staged = EpochStager(stager).Stage(
        {.prepare = &prepare, .resident = {}, .stop = {}, .on_progress = {}});
    EXPECT_TRUE(staged.ok()) << staged.status();
    engine_->Activate(*std::move(staged));
  }

  struct Source {
    AttachRequest request;
    AttachGrant grant;
    FakeLink* link = nullptr;
  };
  Source Attach(DispatchMode mode, std::uint64_t session) {
    return Attach(MakeAttachRequest(MakePlan(1, 2), mode, session));
  }
  Source Attach(const AttachRequest& request) {
    Source source;
    source.request = request;
    auto grant = engine_->Attach(source.request);
    EXPECT_TRUE(grant.ok()) << grant.status();
    source.grant = *std::move(grant);
    source.link = transport_.Find(source.grant.request_ring.attachment);
    return source;
  }
  TestRequest Send(const Source& source, std::uint64_t seed, std::uint16_t slot,
                   std::int32_t tokens = 5, std::int32_t of_layer = 0) {
    SeededRng rng(seed);
    const TestLayer layer = LayerOf(MakePlan(1, 2), LayerId{of_layer});
    const TestStep step = MakeTestStep(rng, layer, tokens, source.request.mode, 0.0);
    TestRequest request =
        MakeRequest(source.request, source.grant, layer, step, WorkerOrdinal{1}, slot);
    transport_.Deliver(source.link, request.header.request_slot, Encode(request));
    return request;
  }
  // Polls until a reply comes.
  ReadReply Next() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      engine_->Poll(now_);
      if (const auto reply = transport_.TakeReply()) {
        sender_ = reply->sender;
        return Read(*reply, TestModel().shape.hidden);
      }
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no reply came";
    return {};
  }

  std::unique_ptr<LateDevice> device_;
  FakeTransport transport_;
  std::vector<absl::Status> faults_;
  TimePoint now_{std::chrono::seconds(100)};
  AttachmentId sender_;
  std::unique_ptr<ExpertEngine> engine_;
};

double CalcDiffOf(const std::vector<Bf16>& got, const std::vector<Bf16>& want) {
  double xy = 0;
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double x = static_cast<double>(Bf16ToFloat(got[i]));
    const double y = static_cast<double>(Bf16ToFloat(want[i]));
    xy += x * y;
    squares += x * x + y * y;
  }
  return squares == 0 ? 0 : 1 - 2 * xy / squares;
}

// A slot for as many rows as go to the device at once is as long as the header and those rows.
TEST_F(LateEngineTest, TakesSlotsOfTheRowsThatItsMemoryHoldsAndNoMore) {
  AttachRequest request = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 1);
  const auto slot_of = [](std::uint32_t rows) {
    return static_cast<std::uint32_t>(LayoutOfResult(rows, TestModel().shape.hidden).frame_bytes);
  };
  request.reply_ring.slot_bytes = slot_of(256 + 32);
  EXPECT_THAT(engine_->Attach(request).status(),
              testing::FailsWith(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
  request.reply_ring.slot_bytes = slot_of(256);
  SY_EXPECT_OK(engine_->Attach(request).status());
}

// Rows that the device does not reach pass through staging memory, which large batches would fill.
TEST_F(LateEngineTest, LargeBatchesAreOfRowsThatTheDeviceReaches) {
  for (const bool maps_host : {false, true}) {
    Start({.kernel_family = "scalar",
           .maps_host = maps_host,
           .prefill_batch = BatchSize{.rows = 1000, .pairs = 4000}},
          {.rows_max = 16, .pairs_max = 64});
    AttachRequest request = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal, 1);
    request.request_slot_bytes = request.reply_ring.slot_bytes;
    request.reply_ring.slot_bytes =
        static_cast<std::uint32_t>(LayoutOfResult(16, TestModel().shape.hidden).frame_bytes);
    const Source source = Attach(request);
    std::vector<TestRequest> sent;
    for (std::uint16_t slot = 0; slot < 2; ++slot)
      sent.push_back(Send(source, slot + 1U, slot, 16));

    for (std::size_t i = 0; i < sent.size(); ++i) {
      const ReadReply reply = Next();
      EXPECT_EQ(reply.header.kind, FrameKind::kResult) << reply.error.text;
    }

    EXPECT_EQ(engine_->stats().batches, maps_host ? 1U : 2U);
  }
}

TEST_F(LateEngineTest, PollNeverWaitsAndEveryRequestIsAnsweredOnceWhateverTheOrder) {
  const Source decode = Attach(DispatchMode::kLowLatency, 1);
  const Source prefill = Attach(DispatchMode::kNormal, 2);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const TestRequest first = Send(prefill, 2 * round + 1, 0);
    const TestRequest second = Send(decode, 2 * round + 2, 0);

    for (int reply = 0; reply < 2; ++reply) {
      const ReadReply got = Next();
      ASSERT_EQ(got.header.kind, FrameKind::kResult) << got.error.text;
      const bool of_decode = got.header.mode == DispatchMode::kLowLatency;
      const std::vector<Bf16>& want = of_decode ? second.expected : first.expected;
      ASSERT_EQ(got.rows.size(), want.size());
      EXPECT_LE(CalcDiffOf(got.rows, want), 1e-4);
    }
    EXPECT_EQ(transport_.TakeReply(), std::nullopt);
  }
  EXPECT_GE(device_->runs(), 40U);
}

TEST_F(LateEngineTest, AFailedRunIsAnExplicitErrorAndTheNextOneServes) {
  const Source source = Attach(DispatchMode::kNormal, 1);
  device_->FailNextRun(
      MakeError(absl::StatusCode::kInternal, Reason::kInternal, "an illegal instruction"));
  Send(source, 1, 0);

  const ReadReply failed = Next();

  EXPECT_EQ(failed.header.kind, FrameKind::kError);
  EXPECT_EQ(failed.error.code, absl::StatusCode::kInternal);
  EXPECT_TRUE(faults_.empty());
  Send(source, 2, 0);
  EXPECT_EQ(Next().header.kind, FrameKind::kResult);
}

// Its rows are on their way to the device by then.
TEST_F(LateEngineTest, ARefusedRunIsAnErrorAndItsMemoryIsNotGivenAwayEarly) {
  const Source source = Attach(DispatchMode::kNormal, 1);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    device_->RefuseNextRun(
        MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "no room"));
    Send(source, seed, 0);
    EXPECT_EQ(Next().header.kind, FrameKind::kError);

    const TestRequest request = Send(source, 100 + seed, 0);
    const ReadReply got = Next();

    ASSERT_EQ(got.header.kind, FrameKind::kResult) << got.error.text;
    EXPECT_LE(CalcDiffOf(got.rows, request.expected), 1e-4);
  }
}

TEST_F(LateEngineTest, ADeadDeviceIsReportedOnceAndRefusesEveryRequest) {
  const Source source = Attach(DispatchMode::kNormal, 1);
  device_->Die();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Send(source, seed, 0);
    const ReadReply refused = Next();
    EXPECT_EQ(refused.header.kind, FrameKind::kError);
    EXPECT_EQ(refused.error.code, absl::StatusCode::kUnavailable);
    EXPECT_EQ(refused.error.reason, static_cast<std::uint32_t>(Reason::kWorkerLost));
  }
  ASSERT_EQ(faults_.size(), 1U);
  EXPECT_EQ(ScopeOf(faults_[0]), FailureScope::kWorker);
}

// The device may still be writing into a ring whose session has gone.
TEST_F(LateEngineTest, ClosingAnAttachmentWithRequestsInABatchWaitsForTheBatchAndAnswersNobody) {
  const Source gone = Attach(DispatchMode::kNormal, 1);
  const Source stays = Attach(DispatchMode::kNormal, 2);
  Send(gone, 1, 0);
  Send(stays, 2, 0);
  engine_->Poll(now_);

  engine_->Close(gone.grant.request_ring.attachment);

  EXPECT_EQ(Next().header.kind, FrameKind::kResult);
  EXPECT_EQ(sender_, stays.grant.request_ring.attachment);
  for (int i = 0; i < 100; ++i) engine_->Poll(now_);
  EXPECT_EQ(transport_.TakeReply(), std::nullopt);
  EXPECT_EQ(engine_->stats().attachments, 1U);
}

TEST_F(LateEngineTest, AnEpochIsUnboundWhenTheLastBatchOnItHasEnded) {
  const Source source = Attach(DispatchMode::kNormal, 1);
  Send(source, 1, 0);
  engine_->Poll(now_);
  bool unbound = false;
  engine_->Retire("demo", Epoch{1}, now_, [&] { unbound = true; });

  engine_->Close(source.grant.request_ring.attachment);

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!unbound && std::chrono::steady_clock::now() < end) engine_->Poll(now_);
  EXPECT_TRUE(unbound);
  EXPECT_NE(engine_->Drop("demo", Epoch{1}).runtime, nullptr);
}

// Requests of two sources for different layers, which wait behind a batch; who is answered first.
class DueFirstTest : public LateEngineTest {
 protected:
  Source AttachWith(std::uint64_t session, Duration step_deadline) {
    AttachRequest request = MakeAttachRequest(MakePlan(1, 2), DispatchMode::kLowLatency, session);
    request.step_deadline = step_deadline;
    return Attach(request);
  }
  // A source with steps of 100 ms sends `after` one whose steps may take `longer`.
  bool ShortOneGoesFirst(Duration longer, Duration after) {
    const Source long_one = AttachWith(1, longer);
    const Source short_one = AttachWith(2, std::chrono::milliseconds(100));
    const AttachmentId first = FirstOf(long_one, short_one, after);
    Next();
    for (const Source* source : {&long_one, &short_one}) {
      engine_->Close(source->grant.request_ring.attachment);
    }
    return first == short_one.grant.request_ring.attachment;
  }

 private:
  // `later` sends `after` the other has.
  AttachmentId FirstOf(const Source& sooner, const Source& later, Duration after) {
    device_->Hang(true);
    Send(sooner, 1, 0);
    engine_->Poll(now_);
    Send(sooner, 2, 1, 5, 1);
    engine_->Poll(now_);
    now_ += after;
    Send(later, 3, 0);
    engine_->Poll(now_);
    device_->Hang(false);
    Next();  // of the batch that runs
    Next();
    return sender_;
  }
};

TEST_F(DueFirstTest, AShortDeadlineGoesBeforeALongOneAndBeforeNone) {
  for (const Duration longer : {std::chrono::milliseconds(900), std::chrono::milliseconds(0)}) {
    EXPECT_TRUE(ShortOneGoesFirst(longer, std::chrono::milliseconds(700)));
  }
}

TEST_F(DueFirstTest, NobodyWaitsBehindShortDeadlinesForLong) {
  for (const Duration longer : {std::chrono::seconds(30), std::chrono::seconds(0)}) {
    EXPECT_FALSE(ShortOneGoesFirst(longer, std::chrono::milliseconds(1950)));
  }
}

}  // namespace
}  // namespace switchyard
