// The gateway's stream over a source of the test's own, reached by the real step channel and by
// plain stubs.
#include "services/worker/forward_stream.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/step.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "tests/services/convert/random_messages.h"
#include "tests/services/sink_log.h"
#include "tests/testing/fake_runner.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::Brief;
using testing::FailsWith;
using testing::RandomMessages;
using testing::SinkLog;

constexpr std::int32_t kHidden = 8;
constexpr std::int32_t kTopK = 2;

// y[t][h] = x[t][h] * (sum of ids[t]) + sum of weights[t]: every input matters.
absl::Status ComputeY(const SessionGrant& grant, const StepRequest& request) {
  if (request.layer.value == 503) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline, "worker w1, layer 503",
                     {{"worker", "w1"}});
  }
  if (request.layer.value == 505 && request.deadline != std::chrono::milliseconds(250)) {
    return absl::InternalError("another deadline than the step's");
  }
  for (std::int32_t t = 0; t < request.tokens; ++t) {
    float ids = 0;
    float weights = 0;
    for (std::int32_t k = 0; k < kTopK; ++k) {
      ids += static_cast<float>(request.ids[t * request.ids_stride + k]);
      weights += request.weights[t * request.weights_stride + k];
    }
    for (std::int32_t h = 0; h < kHidden; ++h) {
      const float value = Bf16ToFloat(request.x[t * request.x_stride + h]) * ids + weights;
      if (grant.request.y_dtype == OutputDtype::kF32) {
        static_cast<float*>(request.y)[t * request.y_stride + h] = value;
      } else {
        static_cast<Bf16*>(request.y)[t * request.y_stride + h] = FloatToBf16(value);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionGrant> GrantUnlessUnknown(const OpenSessionRequest& request) {
  if (request.model == "unknown") {
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such model");
  }
  SessionGrant grant;
  grant.session = {1, 2};
  grant.cookie = Cookie{99};
  grant.request = request;
  grant.plan.shape = {.hidden = kHidden, .intermediate = 4, .experts = 9, .top_k = kTopK};
  return grant;
}

absl::Status RefuseLayer404(const StepRequest& request) {
  if (request.layer.value != 404) return absl::OkStatus();
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer, "no layer 404");
}

class ForwardStreamTest : public ::testing::Test, protected v1::ExpertService::CallbackService {
 protected:
  void SetUp() override {
    SourceOptions source;
    source.coordinator = &coordinator_;
    source.clock = &clock_;
    source.make_runner =
        [this](SessionGrant grant,
               const std::function<void()>& wake) -> absl::StatusOr<std::unique_ptr<StepRunner>> {
      return std::make_unique<testing::FakeRunner>(&steps_, std::move(grant), wake,
                                                   &RefuseLayer404);
    };
    sources_ = std::make_unique<SourcePool>(Source::Create(std::move(source)), nullptr);
    options_.worker_id = "w0";
    options_.credits = 4;
    GrpcServerOptions grpc;
    grpc.message_bytes_max = kStepMessageBytesMax;
    SY_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start(grpc, {this}));
    channel_ = MakeGrpcStepChannel();
  }
  void TearDown() override {
    steps_.Block(false);
    server_->Shutdown(seconds(20));
  }
  grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context) override {
    return ServeForward({context}, sources_.get(), &threads_, &options_);
  }
  std::unique_ptr<v1::ExpertService::Stub> Stub() {
    return v1::ExpertService::NewStub(MakeGrpcChannel(server_->endpoint(), kStepMessageBytesMax));
  }

  testing::GrantingChannel coordinator_{&GrantUnlessUnknown};
  testing::FakeSteps steps_{&ComputeY};
  SteadyClock clock_;
  std::unique_ptr<SourcePool> sources_;
  ThreadPool threads_{2};
  GatewayOptions options_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<StepChannel> channel_;
};

// What a caller was told, with y kept.
class Answers final : public StepSink {
 public:
  void OnOpened(const GatewayGrant& grant) override {
    log.Add(absl::StrCat("opened ", grant.worker_id, " ", grant.credits, " cookie ",
                         grant.grant.cookie.value));
  }
  void OnNews(const GatewayNews& news) override {
    log.Add(absl::StrCat("news epoch ", news.plan.has_value() ? news.plan->plan.epoch.value : 0,
                         news.leaving ? " leaving" : ""));
  }
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) override {
    {
      const std::lock_guard lock(mutex_);
      y_[step.value].assign(y.begin(), y.end());
    }
    log.Add(absl::StrCat("step ", step.value, " ", Brief(status)));
  }
  void OnEnded(const absl::Status& why) override { log.Add("ended " + Brief(why)); }

  std::vector<std::byte> Y(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    return y_[step];
  }
  SinkLog log;

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<std::byte>> y_;
};

// A batch of random rows and what ComputeY makes of it.
struct Batch {
  explicit Batch(SeededRng& rng, std::int32_t rows) : tokens(rows) {
    x.resize(static_cast<std::size_t>(rows * kHidden));
    for (Bf16& value : x) value = FloatToBf16(static_cast<float>(rng.Below(64)) / 8 + 1);
    for (std::int32_t i = 0; i < rows * kTopK; ++i) {
      ids.push_back(static_cast<std::int32_t>(rng.Below(10)) - 1);
      weights.push_back(static_cast<float>(rng.Below(16)) / 16);
    }
  }
  [[nodiscard]] GatewayStep Step(std::uint64_t id) const {
    return {StepId{id}, LayerId{3}, tokens, std::as_bytes(std::span(x)), ids, weights};
  }
  [[nodiscard]] std::vector<float> Expected() const {
    std::vector<float> y;
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      for (std::size_t h = 0; h < kHidden; ++h) {
        y.push_back(Bf16ToFloat(x[t * kHidden + h]) *
                        static_cast<float>(ids[t * kTopK] + ids[t * kTopK + 1]) +
                    weights[t * kTopK] + weights[t * kTopK + 1]);
      }
    }
    return y;
  }
  std::int32_t tokens;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

std::vector<float> AsFloats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

TEST_F(ForwardStreamTest, EveryStepIsAnsweredWithItsOwnRows) {
  const std::uint64_t seed = 7;
  SeededRng rng(seed);
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  ASSERT_TRUE(answers.log.WaitFor(1));
  EXPECT_EQ(answers.log.lines()[0], "opened w0 4 cookie 0");
  std::vector<Batch> batches;
  for (std::uint64_t id = 0; id < 40; ++id) {
    batches.emplace_back(rng, static_cast<std::int32_t>(rng.Below(20)));
    SY_ASSERT_OK(stream->Submit(batches.back().Step(id)));
  }

  ASSERT_TRUE(answers.log.WaitFor(41));

  for (std::uint64_t id = 0; id < 40; ++id) {
    EXPECT_EQ(AsFloats(answers.Y(id)), batches[id].Expected()) << "seed " << seed << " step " << id;
  }
  std::uint64_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.ids.size() / kTopK;
  const GatewayCounts& counts = *options_.counts;
  EXPECT_EQ(counts.results.load(), 40U);
  EXPECT_EQ(counts.tokens.load(), tokens);
  EXPECT_EQ(counts.errors.load(), 0U);
  EXPECT_EQ(counts.StepOf(WorkClass::kPrefill, DispatchMode::kNormal).Counts().count(), 40U);
}

TEST_F(ForwardStreamTest, YComesInTheSessionsDtype) {
  SeededRng rng(8);
  const Batch batch(rng, 5);
  Answers answers;
  OpenSessionRequest order;
  order.y_dtype = OutputDtype::kBf16;
  const auto stream = channel_->Open(server_->endpoint(), order, &answers);

  SY_ASSERT_OK(stream->Submit(batch.Step(1)));
  ASSERT_TRUE(answers.log.WaitForLast("step 1 OK"));

  const std::vector<std::byte> y = answers.Y(1);
  ASSERT_EQ(y.size(), 5U * kHidden * sizeof(Bf16));
  for (std::size_t i = 0; i < 5U * kHidden; ++i) {
    Bf16 value;
    std::memcpy(&value, y.data() + i * sizeof(Bf16), sizeof(Bf16));
    EXPECT_EQ(Bf16ToFloat(value), Bf16ToFloat(FloatToBf16(batch.Expected()[i])));
  }
}

TEST_F(ForwardStreamTest, ASessionThatIsRefusedEndsTheStreamWithTheReason) {
  Answers answers;
  OpenSessionRequest order;
  order.model = "unknown";

  const auto stream = channel_->Open(server_->endpoint(), order, &answers);

  EXPECT_TRUE(answers.log.WaitForLast("ended NOT_FOUND UNKNOWN_MODEL"));
}

TEST_F(ForwardStreamTest, AStepThatIsWrongFailsAloneWithItsReason) {
  SeededRng rng(9);
  const Batch batch(rng, 3);
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  GatewayStep short_x = batch.Step(1);
  short_x.x = short_x.x.first(short_x.x.size() - 2);
  GatewayStep fp32_x = batch.Step(6);  // R63: rows of any dtype but BF16 have other bytes
  const std::vector<std::byte> fp32(2 * fp32_x.x.size(), std::byte{0x3f});
  fp32_x.x = fp32;
  GatewayStep wide_ids = batch.Step(2);
  const std::vector<std::int32_t> ids(9, 1);
  const std::vector<float> weights(9, 0.5F);
  wide_ids.ids = ids;
  wide_ids.weights = weights;
  GatewayStep unknown_layer = batch.Step(3);
  unknown_layer.layer = LayerId{404};
  GatewayStep lost_worker = batch.Step(4);
  lost_worker.layer = LayerId{503};

  GatewayStep own_deadline = batch.Step(7);
  own_deadline.layer = LayerId{505};
  own_deadline.deadline = std::chrono::milliseconds(250);

  for (const GatewayStep& step :
       {short_x, wide_ids, unknown_layer, lost_worker, batch.Step(5), fp32_x, own_deadline}) {
    SY_ASSERT_OK(stream->Submit(step));
  }

  ASSERT_TRUE(answers.log.WaitFor(8));
  std::vector<std::string> lines = answers.log.lines();
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "opened w0 4 cookie 0", "step 1 INVALID_ARGUMENT BAD_SHAPE",
                       "step 2 INVALID_ARGUMENT BAD_TOP_K", "step 3 NOT_FOUND UNKNOWN_LAYER",
                       "step 4 UNAVAILABLE STEP_DEADLINE", "step 5 OK REASON_UNSPECIFIED",
                       "step 6 INVALID_ARGUMENT BAD_SHAPE", "step 7 OK REASON_UNSPECIFIED"}));
  EXPECT_EQ(AsFloats(answers.Y(5)), batch.Expected());
  EXPECT_EQ(options_.counts->results.load(), 2U);
  EXPECT_EQ(options_.counts->errors.load(), 5U);
}

TEST_F(ForwardStreamTest, ACallerThatIgnoresItsCreditsIsNotRead) {
  SeededRng rng(10);
  const Batch batch(rng, 1);
  steps_.Block(true);
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  for (std::uint64_t id = 0; id < 30; ++id) SY_ASSERT_OK(stream->Submit(batch.Step(id)));

  ASSERT_TRUE(steps_.WaitForSubmitted(1));
  EXPECT_LE(steps_.submitted, 4);
  steps_.Block(false);

  ASSERT_TRUE(answers.log.WaitFor(31));  // None is lost.
  std::vector<std::string> expected{"opened w0 4 cookie 0"};
  for (std::uint64_t id = 0; id < 30; ++id) {
    expected.push_back(absl::StrCat("step ", id, " OK REASON_UNSPECIFIED"));
  }
  // Steps that were held end beside those that are read then, so their answers come in any order.
  EXPECT_THAT(answers.log.lines(), ::testing::UnorderedElementsAreArray(expected));
}

// Two callers share the memory, and a step that does not fit costs the others nothing.
TEST_F(ForwardStreamTest, StepsThatDoNotFitTheGatewaysMemoryAreRefusedUntilOthersEnd) {
  SeededRng rng(11);
  const Batch batch(rng, 100);
  // Room for one batch, of about 4,800 bytes of rows and routing, and its result of 3,200.
  options_.memory = std::make_shared<StepMemory>(10'000);
  steps_.Block(true);
  Answers first;
  Answers second;
  const auto stream = channel_->Open(server_->endpoint(), {}, &first);
  const auto other = channel_->Open(server_->endpoint(), {}, &second);
  SY_ASSERT_OK(stream->Submit(batch.Step(1)));
  ASSERT_TRUE(steps_.WaitForSubmitted(1));
  const std::size_t one = options_.memory->used();
  EXPECT_GT(one, 100 * kHidden * (sizeof(Bf16) + sizeof(float)));
  EXPECT_LT(one, 10'000U);

  SY_ASSERT_OK(other->Submit(batch.Step(2)));

  ASSERT_TRUE(second.log.WaitFor(2));
  EXPECT_EQ(second.log.lines().back(), "step 2 RESOURCE_EXHAUSTED NO_CREDITS");
  EXPECT_EQ(options_.memory->used(), one);
  steps_.Block(false);
  ASSERT_TRUE(first.log.WaitFor(2));
  EXPECT_EQ(AsFloats(first.Y(1)), batch.Expected());
  // An answer arrives before its step is destroyed.
  const auto all_is_free = [&] {
    const TimePoint end = clock_.Now() + seconds(20);
    while (options_.memory->used() > 0 && clock_.Now() < end) std::this_thread::yield();
    return options_.memory->used() == 0;
  };
  EXPECT_TRUE(all_is_free());
  SY_ASSERT_OK(other->Submit(batch.Step(3)));
  ASSERT_TRUE(second.log.WaitFor(3));
  EXPECT_EQ(AsFloats(second.Y(3)), batch.Expected());
  EXPECT_TRUE(all_is_free());
}

// Results that nobody reads take memory as well: callers get no more of it until they have read.
TEST_F(ForwardStreamTest, ResultsCountUntilTheCallerHasReadThem) {
  SeededRng rng(12);
  constexpr std::int32_t kRows = 500'000;
  const Batch batch(rng, kRows);
  const std::size_t y_bytes = std::size_t{kRows} * kHidden * sizeof(float);
  // Three results, and the rows and routing of another step, which take 1.5 times as much as its
  // result, without the result.
  options_.memory = std::make_shared<StepMemory>(5 * y_bytes);
  const auto holds = [&](std::size_t bytes) {
    const TimePoint end = clock_.Now() + seconds(20);
    while (options_.memory->used() != bytes && clock_.Now() < end) std::this_thread::yield();
    return options_.memory->used() == bytes;
  };
  const auto stub = Stub();
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReaderWriter<v1::ForwardRequest, v1::ForwardResponse>> streams[2];
  v1::ForwardResponse response;
  for (int i = 0; i < 2; ++i) {
    contexts[i].set_deadline(GrpcDeadline(seconds(60)));
    streams[i] = stub->Forward(&contexts[i]);
    streams[i]->Write(ForwardOpen(OpenSessionRequest{}));
    ASSERT_TRUE(streams[i]->Read(&response));
  }
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(streams[0]->Write(switchyard::ForwardStep(batch.Step(id))));
    EXPECT_TRUE(holds(id * y_bytes)) << options_.memory->used();
  }

  ASSERT_TRUE(streams[1]->Write(switchyard::ForwardStep(batch.Step(4))));

  ASSERT_TRUE(streams[1]->Read(&response));
  const absl::Status refused = StatusFromProto(response.result().error());
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  const std::string sizes = absl::StrCat("takes ", y_bytes, " bytes more");
  EXPECT_NE(refused.message().find(sizes), std::string::npos) << refused;
  const std::string limit = absl::StrCat("of ", options_.memory->bytes_max());
  EXPECT_NE(refused.message().find(limit), std::string::npos) << refused;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(streams[0]->Read(&response));
    EXPECT_EQ(response.result().step(), id);
    EXPECT_EQ(response.result().y().size(), y_bytes);
  }
  EXPECT_TRUE(holds(0));
  ASSERT_TRUE(streams[1]->Write(switchyard::ForwardStep(batch.Step(5))));
  ASSERT_TRUE(streams[1]->Read(&response));
  EXPECT_FALSE(response.result().has_error());
}

// The stream's limit is for steps.
TEST_F(ForwardStreamTest, OptionsOfASessionAreNoLargerThanAControlMessage) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));
  const auto stub = Stub();
  const auto stream = stub->Forward(&context);
  OpenSessionRequest large;
  large.model = std::string(kControlMessageBytesMax, 'm');

  stream->Write(ForwardOpen(large));

  v1::ForwardResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_THAT(StatusFromGrpc(stream->Finish()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kMessageTooLarge));
}

TEST_F(ForwardStreamTest, AShortStepDoesNotWaitForTheResultOfALongOne) {
  SeededRng rng(14);
  const Batch batch(rng, 2);
  std::atomic<bool> computing{true};
  steps_.held = [&](const StepRequest& request) { return request.layer.value == 60 && computing; };
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  GatewayStep slow = batch.Step(1);
  slow.layer = LayerId{60};
  SY_ASSERT_OK(stream->Submit(slow));
  ASSERT_TRUE(steps_.WaitForSubmitted(1));

  SY_ASSERT_OK(stream->Submit(batch.Step(2)));

  ASSERT_TRUE(answers.log.WaitForLast("step 2 OK"));
  computing = false;
  steps_.Block(false);  // Wakes whoever waits.
  ASSERT_TRUE(answers.log.WaitForLast("step 1 OK"));
}

TEST_F(ForwardStreamTest, ACallerThatDiesFreesItsSessionAndThread) {
  SeededRng rng(11);
  const Batch batch(rng, 2);
  for (int round = 0; round < 20; ++round) {
    Answers answers;
    auto stream = channel_->Open(server_->endpoint(), {}, &answers);
    if (round % 3 > 0) {
      ASSERT_TRUE(answers.log.WaitFor(1));
    }
    for (std::uint64_t id = rng.Below(7); id > 0; --id) {
      // A session that is refused because the last ones are still being closed takes no steps.
      stream->Submit(batch.Step(id)).IgnoreError();
    }
    stream.reset();
  }

  ASSERT_TRUE(steps_.WaitUntilAllClosed());
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  std::string first;
  while (first != "opened" && std::chrono::steady_clock::now() < deadline) {
    Answers answers;
    const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
    ASSERT_TRUE(answers.log.WaitFor(1));
    first = answers.log.lines()[0].substr(0, 6);
  }
  EXPECT_EQ(first, "opened");
}

TEST_F(ForwardStreamTest, AHalfClosedStreamGetsAllItsAnswers) {
  SeededRng rng(12);
  const Batch batch(rng, 2);
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));
  const auto stub = Stub();
  const auto stream = stub->Forward(&context);
  stream->Write(ForwardOpen({}));
  for (std::uint64_t id = 0; id < 9; ++id) stream->Write(ForwardStep(batch.Step(id)));

  stream->WritesDone();

  v1::ForwardResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_opened());
  for (std::uint64_t id = 0; id < 9; ++id) {
    ASSERT_TRUE(stream->Read(&response)) << id;
    EXPECT_EQ(response.result().step(), id);
  }
  EXPECT_FALSE(stream->Read(&response));
  SY_EXPECT_OK(StatusFromGrpc(stream->Finish()));
}

TEST_F(ForwardStreamTest, MessagesOutOfPlaceEndTheStream) {
  SeededRng rng(13);
  const Batch batch(rng, 2);
  const v1::ForwardRequest open = ForwardOpen({});
  const v1::ForwardRequest step = ForwardStep(batch.Step(1));
  const std::vector<std::vector<v1::ForwardRequest>> scripts = {{step},
                                                                {open, open},
                                                                {v1::ForwardRequest()},
                                                                {open, v1::ForwardRequest()},
                                                                {open, step, open}};
  for (const std::vector<v1::ForwardRequest>& script : scripts) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stub = Stub();
    const auto stream = stub->Forward(&context);
    for (const v1::ForwardRequest& request : script) stream->Write(request);

    v1::ForwardResponse response;
    while (stream->Read(&response)) {
    }
    EXPECT_THAT(StatusFromGrpc(stream->Finish()),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  }
}

TEST_F(ForwardStreamTest, MoreSessionsThanThreadsAreRefused) {
  Answers first;
  Answers second;
  Answers third;
  const auto one = channel_->Open(server_->endpoint(), {}, &first);
  const auto two = channel_->Open(server_->endpoint(), {}, &second);
  ASSERT_TRUE(first.log.WaitForLast("opened"));
  ASSERT_TRUE(second.log.WaitForLast("opened"));

  const auto three = channel_->Open(server_->endpoint(), {}, &third);

  EXPECT_TRUE(third.log.WaitForLast("ended RESOURCE_EXHAUSTED TOO_MANY_SESSIONS"));
}

// The caller moves to another gateway; the steps that it still sends here are served.
TEST_F(ForwardStreamTest, AGatewayThatLeavesTellsItsCallersAndServesThem) {
  SeededRng rng(15);
  const Batch batch(rng, 2);
  std::atomic<bool> computing{true};
  steps_.held = [&](const StepRequest& request) { return request.layer.value == 60 && computing; };
  Answers idle;
  Answers busy;
  const auto one = channel_->Open(server_->endpoint(), {}, &idle);
  const auto two = channel_->Open(server_->endpoint(), {}, &busy);
  GatewayStep slow = batch.Step(1);
  slow.layer = LayerId{60};
  SY_ASSERT_OK(two->Submit(slow));
  ASSERT_TRUE(steps_.WaitForSubmitted(1));

  options_.sessions->Leave();

  ASSERT_TRUE(idle.log.WaitForLast("news epoch 0 leaving"));
  ASSERT_TRUE(busy.log.WaitForLast("news epoch 0 leaving")) << "while its step runs";
  Answers late;
  const auto three = channel_->Open(server_->endpoint(), {}, &late);
  EXPECT_TRUE(late.log.WaitForLast("ended UNAVAILABLE WORKER_LOST"));
  SY_ASSERT_OK(one->Submit(batch.Step(2)));
  ASSERT_TRUE(idle.log.WaitForLast("step 2 OK"));
  const TimePoint begin = clock_.Now();
  options_.sessions->WaitUntilDone(Duration::zero(), begin + std::chrono::milliseconds(100));
  EXPECT_GE(clock_.Now(), begin + std::chrono::milliseconds(100)) << "a step is running";
  computing = false;
  steps_.Block(false);  // Wakes whoever waits.
  ASSERT_TRUE(busy.log.WaitForLast("step 1 OK"));
  options_.sessions->WaitUntilDone(std::chrono::milliseconds(50), begin + seconds(20));
  EXPECT_LT(clock_.Now(), begin + seconds(10));
}

TEST_F(ForwardStreamTest, TellsAnIdleCallerOfANewPlan) {
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  ASSERT_TRUE(answers.log.WaitFor(1));
  PlanUpdate update;
  update.plan.epoch = Epoch{5};
  update.plan.shape = {.hidden = kHidden, .intermediate = 4, .experts = 9, .top_k = kTopK};

  coordinator_.watch->OnPlan(update);

  EXPECT_TRUE(answers.log.WaitForLast("news epoch 5"));
}

TEST_F(ForwardStreamTest, ShutdownEndsSessions) {
  Answers answers;
  const auto stream = channel_->Open(server_->endpoint(), {}, &answers);
  ASSERT_TRUE(answers.log.WaitForLast("opened"));

  server_->Shutdown(Duration{});

  EXPECT_TRUE(steps_.WaitUntilAllClosed());
  EXPECT_TRUE(answers.log.WaitForLast("ended UNAVAILABLE WORKER_LOST"));
}

}  // namespace
}  // namespace switchyard
