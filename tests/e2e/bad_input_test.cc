// Bad input from end to end: each gets its documented code and reason with the ids and what to do
// next, and the sessions beside it answer bit for bit as before.
#include <functional>
#include <limits>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "services/channels/grpc_channels.h"
#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::kHidden;
using testing::Processes;
using testing::ReferenceOf;
using testing::RunStep;

constexpr std::int32_t kLayer = 1;

struct BadStep {
  const char* name;
  std::function<void(Batch&, StepRequest&)> spoil;
  StatusCode code;
  Reason reason;
  std::map<std::string, std::string> metadata;
  const char* next;  // what the text says to do
};

// Views that do not fit.
std::vector<BadStep> BadShapes() {
  return {
      {"rows of x overlap",
       [](Batch&, StepRequest& r) { r.x_stride = kHidden - 1; },
       StatusCode::kInvalidArgument,
       Reason::kBadShape,
       {{"layer", "1"}},
       "pass dense rows"},
      {"x is not aligned",
       [](Batch&, StepRequest& r) {
         r.x = reinterpret_cast<const Bf16*>(reinterpret_cast<const char*>(r.x) + 1);
       },
       StatusCode::kInvalidArgument,
       Reason::kBadShape,
       {{"layer", "1"}},
       "copy it first"},
      {"no y",
       [](Batch&, StepRequest& r) { r.y = nullptr; },
       StatusCode::kInvalidArgument,
       Reason::kBadShape,
       {{"layer", "1"}},
       "y is null"},
      {"negative tokens",
       [](Batch&, StepRequest& r) { r.tokens = -1; },
       StatusCode::kInvalidArgument,
       Reason::kBadShape,
       {{"layer", "1"}},
       "0 or more"},
      {"another top-k",
       [](Batch&, StepRequest& r) { r.top_k = 3; },
       StatusCode::kInvalidArgument,
       Reason::kBadTopK,
       {{"have", "3"}, {"want", "4"}},
       "pad with id -1"},
  };
}

// Views that fit, and what stands in them does not.
std::vector<BadStep> BadContents() {
  return {
      {"an expert that is not there",
       [](Batch& b, StepRequest&) { b.ids[5] = 16; },
       StatusCode::kInvalidArgument,
       Reason::kExpertOutOfRange,
       {{"row", "1"}},
       ""},
      {"a negative expert",
       [](Batch& b, StepRequest&) { b.ids[8] = -2; },
       StatusCode::kInvalidArgument,
       Reason::kExpertOutOfRange,
       {{"row", "2"}},
       ""},
      {"an expert twice",
       [](Batch& b, StepRequest&) { b.ids[1] = b.ids[0]; },
       StatusCode::kInvalidArgument,
       Reason::kDuplicateExpert,
       {{"row", "0"}},
       ""},
      {"NaN in a strict session",
       [](Batch& b, StepRequest&) { b.x[3 * kHidden + 7] = 0x7fc1; },
       StatusCode::kInvalidArgument,
       Reason::kNanInput,
       {{"layer", "1"}, {"row", "3"}},
       "open the session without strict"},
      {"a layer that the model does not have",
       [](Batch&, StepRequest& r) { r.layer = LayerId{4}; },
       StatusCode::kNotFound,
       Reason::kUnknownLayer,
       {{"layer", "4"}, {"model", "sqlite-moe-7m"}},
       "its layers are 0 to 3"},
      {"more tokens than low_latency takes",
       [](Batch& b, StepRequest& r) {
         b = Batch(513, 31);
         r = b.Request(kLayer);
       },
       StatusCode::kInvalidArgument,
       Reason::kTooManyTokens,
       {{"have", "513"}, {"limit", "512"}},
       "split the batch"},
  };
}

class BadInputTest : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Deploy(2);
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(GetParam()));
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->OpenWhenReady(Order(), testing::kReadyTimeout));
    SY_ASSERT_OK_AND_ASSIGN(other_client_, Connect("tcp"));
    SY_ASSERT_OK_AND_ASSIGN(other_, other_client_->Open(Order()));
    SY_ASSERT_OK(RunStep(*other_, before_, kLayer));
  }
  void TearDown() override {
    session_.reset();
    other_.reset();
    client_.reset();
    other_client_.reset();
  }
  static OpenSessionRequest Order() {
    OpenSessionRequest order;
    order.mode = DispatchMode::kLowLatency;
    order.strict = true;
    return order;
  }
  void ExpectTheOtherSessionGoesOn() {
    Batch batch(12, 30);
    SY_ASSERT_OK(RunStep(*other_, batch, kLayer));
    EXPECT_EQ(batch.y, before_.y);
  }

  Batch before_{12, 30};
  std::unique_ptr<Client> client_;
  std::unique_ptr<Client> other_client_;
  std::unique_ptr<MoeSession> session_;
  std::unique_ptr<MoeSession> other_;
};

TEST_P(BadInputTest, EachBadStepIsRefusedByNameAndHarmsNobody) {
  std::vector<BadStep> all = BadShapes();
  for (BadStep& bad : BadContents()) all.push_back(std::move(bad));
  for (const BadStep& bad : all) {
    SCOPED_TRACE(bad.name);
    Batch batch(12, 30);
    StepRequest request = batch.Request(kLayer);
    bad.spoil(batch, request);

    absl::Status status;
    const auto ticket = session_->Submit(request);
    status = ticket.ok() ? session_->Wait(*ticket) : ticket.status();

    EXPECT_THAT(status, FailsWith(bad.code, bad.reason));
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.next));
    for (const auto& [key, value] : bad.metadata) {
      EXPECT_EQ(MetadataOf(status)[key], value) << key << " of " << status;
    }
    Batch good(12, 30);
    SY_EXPECT_OK(RunStep(*session_, good, kLayer));
    EXPECT_EQ(good.y, before_.y);
    ExpectTheOtherSessionGoesOn();
  }
}

TEST_P(BadInputTest, AModelOrDeploymentThatIsNotThereIsNamed) {
  OpenSessionRequest model = Order();
  model.model = "no-such-model";
  OpenSessionRequest deployment = Order();
  deployment.deployment = "nowhere";

  const absl::Status no_model = client_->Open(model).status();
  const absl::Status no_deployment = client_->Open(deployment).status();

  EXPECT_THAT(no_model, FailsWith(StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_THAT(std::string(no_model.message()), HasSubstr("no-such-model"));
  EXPECT_THAT(no_deployment, FailsWith(StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_THAT(std::string(no_deployment.message()), HasSubstr("nowhere"));
  ExpectTheOtherSessionGoesOn();
}

INSTANTIATE_TEST_SUITE_P(Through, BadInputTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

class EndToEndErrorsTest : public Processes {};

TEST_F(EndToEndErrorsTest, AStepAboveTheMessageLimitOfTheGatewayIsRefused) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("gateway"));
  OpenSessionRequest order;
  order.mode = DispatchMode::kNormal;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, testing::kReadyTimeout));
  Batch batch(131072, 32);

  const absl::Status status = RunStep(*session, batch, kLayer);

  EXPECT_THAT(status, FailsWith(StatusCode::kInvalidArgument, Reason::kMessageTooLarge));
  EXPECT_THAT(std::string(status.message()), HasSubstr("send fewer tokens in a step"));
  Batch small(12, 30);
  SY_EXPECT_OK(RunStep(*session, small, kLayer));
}

class AttachEnd final : public AttachSink {
 public:
  void OnAttached(const AttachGrant& /*grant*/) override { Tell(absl::InternalError("attached")); }
  void OnBound(Epoch /*epoch*/, const absl::Status& /*result*/) override {}
  void OnAttachEnded(const absl::Status& why) override { Tell(why); }
  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, testing::kReadyTimeout, [this] { return told_.has_value(); });
    return told_.value_or(absl::InternalError("nothing came"));
  }

 private:
  void Tell(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!told_.has_value()) told_ = status;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Status> told_;  // guarded by mutex_
};

// An attachment to the plan of `grant`, with a ring that nobody serves.
AttachRequest AttachTo(const SessionGrant& grant) {
  AttachRequest order;
  order.session = grant.session;
  order.cookie = grant.cookie;
  order.deployment = grant.plan.deployment;
  order.phase = grant.request.phase;
  order.mode = *grant.request.mode;
  order.max_tokens = grant.request.max_tokens;
  order.signature = grant.signature;
  order.epoch = grant.plan.epoch;
  order.hash = grant.hash;
  order.reply_ring.transport = "ucx";
  order.reply_ring.address = "nobody";
  order.reply_ring.incarnation = Incarnation{1, 2};
  order.reply_ring.attachment = AttachmentId{1};
  order.reply_ring.ring_bytes = 8 * 4096;
  order.reply_ring.slots = 8;
  order.reply_ring.slot_bytes = 4096;
  return order;
}

TEST_F(EndToEndErrorsTest, AttachingToAnEpochThatIsNotTheWorkersIsStale) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  const auto channel = MakeGrpcSessionChannel(deployment_->coordinator());
  AttachRequest order = AttachTo(grant);
  order.epoch = Epoch{grant.plan.epoch.value + 6};
  AttachEnd end;

  const auto stream = channel->Attach(deployment_->worker_address(0), order, &end);

  const absl::Status status = end.Wait();
  EXPECT_THAT(status, FailsWith(StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  Batch batch(12, 30);
  SY_EXPECT_OK(RunStep(*session, batch, kLayer));
}

// Nobody reaches a worker with a session that the coordinator did not grant, nor with one that it
// granted otherwise. The grant itself passes: what is refused then is the ring.
TEST_F(EndToEndErrorsTest, AttachingWithoutTheCoordinatorsGrantIsRefused) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant shown, session->Grant());
  EXPECT_EQ(shown.signature, GrantSignature{}) << "a status shows no secrets";
  const auto channel = MakeGrpcSessionChannel(deployment_->coordinator());
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant,
                          channel->OpenSession({}, std::chrono::seconds(10)));
  const auto answer = [&](const AttachRequest& order) {
    AttachEnd end;
    const auto stream = channel->Attach(deployment_->worker_address(0), order, &end);
    return end.Wait();
  };
  AttachRequest guessed = AttachTo(shown);
  guessed.cookie = Cookie{1};
  AttachRequest stolen = AttachTo(grant);
  stolen.session.low ^= 1;
  AttachRequest larger = AttachTo(grant);
  larger.max_tokens *= 2;

  for (const AttachRequest& order : {guessed, stolen, larger}) {
    const absl::Status status = answer(order);
    EXPECT_THAT(status, FailsWith(StatusCode::kUnauthenticated, Reason::kBadGrant));
    EXPECT_EQ(MetadataOf(status)["session"], ToHex(order.session));
  }
  EXPECT_THAT(answer(AttachTo(grant)),
              FailsWith(StatusCode::kFailedPrecondition, Reason::kTransport));
  Batch batch(12, 30);
  SY_EXPECT_OK(RunStep(*session, batch, kLayer));
}

// Every session on the epoch of a worker that died says so once, and goes on after the re-plan.
TEST_F(EndToEndErrorsTest, EverySessionOutlivesAWorkersDeath) {
  Deploy(3);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<MoeSession>> sessions;
  std::vector<std::vector<float>> before;
  const std::vector<DispatchMode> modes = {DispatchMode::kLowLatency, DispatchMode::kLowLatency,
                                           DispatchMode::kNormal, DispatchMode::kLowLatency};
  const std::vector<std::string> transports = {"tcp", "shm", "tcp", "gateway"};
  for (std::size_t s = 0; s < modes.size(); ++s) {
    OpenSessionRequest order;
    order.mode = modes[s];
    SY_ASSERT_OK_AND_ASSIGN(auto client, Connect(transports[s]));
    SY_ASSERT_OK_AND_ASSIGN(auto session, client->OpenWhenReady(order, testing::kReadyTimeout));
    clients.push_back(std::move(client));
    sessions.push_back(std::move(session));
    Batch batch(12, 33);
    SY_ASSERT_OK(RunStep(*sessions.back(), batch, kLayer));
    before.push_back(batch.y);
  }

  deployment_->worker_process(2).Signal(SIGKILL);

  for (std::size_t s = 0; s < modes.size(); ++s) {
    SCOPED_TRACE(transports[s] + " " + std::string(DispatchModeName(modes[s])));
    const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
    Batch batch(12, 33);
    absl::Status status = RunStep(*sessions[s], batch, kLayer);
    while (!status.ok() && std::chrono::steady_clock::now() < until) {
      ASSERT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_EQ(MetadataOf(status)["worker"], "w2") << status;
      EXPECT_EQ(MetadataOf(status)["layer"], "1") << status;
      status = RunStep(*sessions[s], batch, kLayer);
    }
    SY_ASSERT_OK(status);
    if (modes[s] == DispatchMode::kLowLatency) {
      EXPECT_EQ(batch.y, before[s]);
    } else {
      EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), 1.5e-5);
    }
  }
  sessions.clear();  // before their clients
}

}  // namespace
}  // namespace switchyard
