// Two engines with certificates of their own, and a worker's that is stolen: nobody can use, watch
// or end the session of another, or learn that it exists, and an id that has left the table of
// identities has no stream a few seconds later.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/config/security_files.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/group.h"
#include "services/convert/session.h"
#include "services/convert/step.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "tests/e2e/step_load.h"
#include "tests/e2e/tls_callers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::Batch;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::ReplaceFile;
using testing::RunStep;
using testing::StepLoad;
using testing::TlsCallers;

constexpr SessionId kNever{0x0123456789abcdef, 0xfedcba9876543210};
// After the table has changed; the processes look at it once a second.
constexpr Duration kEndsWithin = seconds(5);
const auto kUnknown = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession);

std::string Without(const absl::Status& status, SessionId session) {
  return absl::StrReplaceAll(status.ToString(), {{ToHex(session), "ID"}});
}

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

// As a source watches.
WatchRequest WatchOf(const SessionGrant& grant) {
  const GrantClaims claims = ClaimsOf(grant);
  return {.session = grant.session,
          .deployment = grant.plan.deployment,
          .phase = grant.request.phase,
          .epoch = grant.plan.epoch,
          .hash = grant.hash,
          .cookie = claims.cookie,
          .mode = claims.mode,
          .max_tokens = claims.max_tokens,
          .record_amax = claims.record_amax,
          .group = claims.group,
          .signature = grant.signature};
}

class TlsSessionsTest : public TlsCallers {
 protected:
  // Each call as `name`, once; streams until they end, at most for `until`.
  absl::StatusOr<SessionGrant> OpenAs(const std::string& name, const std::string& for_id = "") {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    OpenSessionRequest order;
    order.on_behalf_of = for_id;
    const v1::OpenSessionRequest request = ToProto(order);
    v1::OpenSessionResponse response;
    const absl::Status status =
        StatusFromGrpc(CoordinatorAs(name)->OpenSession(&context, request, &response));
    if (!status.ok()) return status;
    return FromProto(response);
  }
  absl::Status CloseAs(const std::string& name, SessionId session) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    v1::CloseSessionResponse response;
    return StatusFromGrpc(CoordinatorAs(name)->CloseSession(&context, ToProto(session), &response));
  }
  absl::Status WatchAs(const std::string& name, const WatchRequest& request,
                       Duration until = seconds(20)) {
    const auto stub = CoordinatorAs(name);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(until));
    const auto stream = stub->WatchPlan(&context, ToProto(request));
    v1::WatchPlanResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  }
  absl::Status AttachAs(const std::string& name, const AttachRequest& request) {
    const auto stub = WorkerAs(name);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stream = stub->Attach(&context);
    stream->Write(ToProto(AttachMessage(request)));
    v1::AttachResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  }
  absl::Status JoinAs(const std::string& name, const JoinRequest& request) {
    const auto stub = WorkerAs(name);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stream = stub->JoinGroup(&context);
    stream->Write(ToProto(GroupMessage(request)));
    v1::JoinGroupResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  }
  static bool StillOpen(const absl::Status& status) {
    return status.code() == absl::StatusCode::kDeadlineExceeded;
  }
};

// Whoever has the whole grant, secrets included, but not the opener's certificate.
TEST_F(TlsSessionsTest, AnotherIdentityFindsNoSession) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, OpenAs("engine-a"));
  SessionGrant never = grant;
  never.session = kNever;

  for (const char* other : {"engine-b", "thief"}) {
    const absl::Status closed = CloseAs(other, grant.session);
    EXPECT_THAT(closed, kUnknown) << other;
    EXPECT_EQ(Without(closed, grant.session), Without(CloseAs(other, kNever), kNever)) << other;

    const absl::Status watched = WatchAs(other, WatchOf(grant));
    EXPECT_THAT(watched, kUnknown) << other;
    EXPECT_EQ(Without(watched, grant.session), Without(WatchAs(other, WatchOf(never)), kNever))
        << other;
    WatchRequest word = WatchOf(grant);
    word.signature = {};
    EXPECT_THAT(WatchAs(other, word), kUnknown) << other;

    const absl::Status attached = AttachAs(other, AttachTo(grant));
    EXPECT_THAT(attached, kUnknown) << other;
    EXPECT_EQ(Without(attached, grant.session), Without(AttachAs(other, AttachTo(never)), kNever))
        << other;
  }
  JoinRequest join;
  join.attach = AttachTo(grant);
  join.group = grant.group;
  EXPECT_THAT(JoinAs("engine-b", join), kUnknown);
  JoinRequest never_join = join;
  never_join.attach.session = kNever;
  EXPECT_EQ(Without(JoinAs("engine-b", join), grant.session),
            Without(JoinAs("engine-b", never_join), kNever));

  // What somebody without a grant names may exist or not.
  AttachRequest no_epoch = AttachTo(never);
  no_epoch.epoch = Epoch{99};
  AttachRequest no_deployment = no_epoch;
  no_deployment.deployment = "nothing";
  for (const AttachRequest& order : {no_epoch, no_deployment}) {
    join.attach = order;
    for (const absl::Status& refused : {AttachAs("engine-b", order), JoinAs("engine-b", join)}) {
      EXPECT_THAT(refused, kUnknown);
      EXPECT_EQ(absl::StrReplaceAll(refused.ToString(), {{"nothing", "local"}}),
                AttachAs("engine-b", AttachTo(never)).ToString());
    }
  }
  join.attach = AttachTo(grant);

  // The opener gets through to what is wrong with this attachment, and to everything else.
  EXPECT_THAT(AttachAs("engine-a", AttachTo(grant)),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  EXPECT_FALSE(absl::IsNotFound(JoinAs("engine-a", join)));
  EXPECT_TRUE(StillOpen(WatchAs("engine-a", WatchOf(grant), seconds(1))));
  SY_EXPECT_OK(CloseAs("engine-a", grant.session));
}

// What the coordinator knows of sessions ends with it; their openers are in the grants.
TEST_F(TlsSessionsTest, ARestartedCoordinatorTellsThemApart) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, OpenAs("engine-a"));
  deployment_->coordinator_process().Signal(SIGKILL);
  SY_ASSERT_OK(deployment_->coordinator_process().Wait(seconds(40)).status());
  SY_ASSERT_OK(deployment_->RestartCoordinator());
  // Until the workers have told it of the plan, nobody's session is known.
  absl::Status opener;
  const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
  do {
    EXPECT_FALSE(StillOpen(WatchAs("engine-b", WatchOf(grant), seconds(1))));
    opener = WatchAs("engine-a", WatchOf(grant), seconds(1));
  } while (!StillOpen(opener) && std::chrono::steady_clock::now() < until);

  EXPECT_TRUE(StillOpen(opener)) << opener;
  EXPECT_THAT(WatchAs("engine-b", WatchOf(grant)), kUnknown);
  EXPECT_THAT(CloseAs("engine-b", grant.session), kUnknown);
  SY_EXPECT_OK(CloseAs("engine-a", grant.session));
}

TEST_F(TlsSessionsTest, OnlyWorkersOpenSessionsForOthers) {
  EXPECT_EQ(OpenAs("engine-b", "spiffe://d/engine-a").status().code(),
            absl::StatusCode::kPermissionDenied);
  const absl::Status nobody = OpenAs("worker", "spiffe://d/nobody").status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(nobody.message()),
              HasSubstr("for a caller of the gateway: the server's table"));
  EXPECT_EQ(OpenAs("worker", "spiffe://d/admin").status().code(),
            absl::StatusCode::kPermissionDenied);

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, OpenAs("worker", "spiffe://d/engine-a"));
  // It is the gateway's: its caller has a stream and no session.
  EXPECT_THAT(CloseAs("engine-a", grant.session), kUnknown);
  EXPECT_THAT(WatchAs("engine-a", WatchOf(grant)), kUnknown);
  SY_EXPECT_OK(CloseAs("worker", grant.session));
}

// A caller of a gateway sees the id of its session, and that of nobody else's helps it.
TEST_F(TlsSessionsTest, TheSessionsOfAGatewayAreItsOwn) {
  const auto gateway = ClientAs("engine-a", "gateway");
  ASSERT_NE(gateway, nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, gateway->OpenWhenReady({}, testing::kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant shown, session->Grant());

  for (const char* name : {"engine-a", "engine-b", "thief"}) {
    EXPECT_THAT(CloseAs(name, shown.session), kUnknown) << name;
    EXPECT_THAT(AttachAs(name, AttachTo(shown)), kUnknown) << name;
  }
  Batch batch(4, 3);
  SY_EXPECT_OK(RunStep(*session, batch, 0));
}

// One open stream, on a thread of its own until it has ended.
class OpenStream {
 public:
  explicit OpenStream(std::function<absl::Status(std::function<void()> opened)> run)
      : thread_([this, run = std::move(run)] {
          const absl::Status status = run([this] { Set(&opened_, absl::OkStatus()); });
          Set(&ended_, status);
        }) {}
  ~OpenStream() { thread_.join(); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  bool WaitUntilOpen() { return Wait(&opened_, testing::kReadyTimeout).has_value(); }
  std::optional<absl::Status> WaitForEnd(Duration within) { return Wait(&ended_, within); }

 private:
  void Set(std::optional<absl::Status>* what, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    *what = status;
    changed_.notify_all();
  }
  std::optional<absl::Status> Wait(const std::optional<absl::Status>* what, Duration within) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, within, [&] { return what->has_value(); });
    return *what;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Status> opened_;  // these two are guarded by mutex_
  std::optional<absl::Status> ended_;
  std::thread thread_;
};

constexpr Duration kStream = seconds(60);

class TlsStreamsTest : public TlsSessionsTest {
 protected:
  // Reads a stream that a client opens by itself until it ends.
  template <typename Response, typename Stream>
  static absl::Status ReadOut(Stream& stream, const std::function<void()>& opened) {
    Response response;
    stream.WaitForInitialMetadata();
    while (stream.Read(&response)) opened();
    return StatusFromGrpc(stream.Finish());
  }
  std::unique_ptr<OpenStream> OpenWatch(const std::string& name, const SessionGrant& grant) {
    return std::make_unique<OpenStream>([=, this](const std::function<void()>& opened) {
      const auto stub = CoordinatorAs(name);
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(kStream));
      // Of an epoch before the plan's, so that an update comes at once.
      WatchRequest request = WatchOf(grant);
      request.epoch = Epoch{request.epoch.value - 1};
      const auto stream = stub->WatchPlan(&context, ToProto(request));
      return ReadOut<v1::WatchPlanResponse>(*stream, opened);
    });
  }
  std::unique_ptr<OpenStream> OpenForward(const std::string& name) {
    return std::make_unique<OpenStream>([=, this](const std::function<void()>& opened) {
      const auto stub = WorkerAs(name);
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(kStream));
      const auto stream = stub->Forward(&context);
      v1::ForwardRequest request;
      request.mutable_open();
      stream->Write(request);
      return ReadOut<v1::ForwardResponse>(*stream, opened);
    });
  }
  std::unique_ptr<OpenStream> OpenMembership(const std::string& name) {
    return std::make_unique<OpenStream>([=, this](const std::function<void()>& opened) {
      const auto stub = ControlAs(name);
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(kStream));
      const auto stream = stub->Session(&context);
      stream->Write(ToProto(WorkerMessage(Member("extra"))));
      return ReadOut<v1::SessionResponse>(*stream, opened);
    });
  }
  static absl::Status EndOf(OpenStream& stream) {
    return stream.WaitForEnd(kEndsWithin).value_or(absl::OkStatus());
  }
};

TEST_F(TlsStreamsTest, ARemovedIdHasNoStreamFiveSecondsLater) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, OpenAs("engine-b"));
  const auto watch = OpenWatch("engine-b", grant);
  const auto forward = OpenForward("engine-b");
  const auto mine = ClientAs("engine-b", "tcp");
  ASSERT_NE(mine, nullptr);
  OpenSessionRequest order;
  order.step_deadline = seconds(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto attached, mine->OpenWhenReady(order, testing::kReadyTimeout));
  Batch own(4, 4);
  SY_ASSERT_OK(RunStep(*attached, own, 0));
  ASSERT_TRUE(watch->WaitUntilOpen());
  ASSERT_TRUE(forward->WaitUntilOpen());
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client_->Open({}));
  const auto through_gateway = ClientAs("engine-a", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway_session, through_gateway->Open({}));
  Batch batch(4, 5);
  Batch gateway_batch(4, 6);
  StepLoad load([&] { return RunStep(*session, batch, 0); });
  StepLoad gateway_load([&] { return RunStep(*gateway_session, gateway_batch, 0); });

  Remove("engine-b");

  for (OpenStream* stream : {watch.get(), forward.get()}) {
    const absl::Status end = EndOf(*stream);
    EXPECT_EQ(end.code(), absl::StatusCode::kUnauthenticated) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("does not have spiffe://d/engine-b"));
  }
  // Its attachments are closed, so its rows go nowhere.
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  absl::Status step;
  do {
    step = RunStep(*attached, own, 0);
  } while (step.ok() && std::chrono::steady_clock::now() < until);
  EXPECT_FALSE(step.ok());
  const int seen = load.steps();
  const int gateway_seen = gateway_load.steps();
  while (load.steps() < seen + 10 || gateway_load.steps() < gateway_seen + 10) {
    std::this_thread::yield();
  }
  load.Stop();
  gateway_load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
  EXPECT_EQ(gateway_load.failed(), 0) << gateway_load.first_error();
}

TEST_F(TlsStreamsTest, ALostRoleEndsTheStreamsOfThatRole) {
  const auto member = OpenMembership("worker-b");
  ASSERT_TRUE(member->WaitUntilOpen());
  std::map<std::string, std::string> roles = roles_;
  roles["worker-b"] = "source";
  ChangeTable(roles);

  const absl::Status end = EndOf(*member);
  EXPECT_EQ(end.code(), absl::StatusCode::kPermissionDenied) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("spiffe://d/worker-b may not call"));
}

// The end waits in no queue: the caller does not read, and steps are under way.
TEST_F(TlsStreamsTest, ACallerThatDoesNotReadIsCutOff) {
  const auto stub = WorkerAs("engine-b");
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kStream));
  const auto stream = stub->Forward(&context);
  v1::ForwardRequest open;
  open.mutable_open();
  stream->Write(open);
  v1::ForwardResponse opened;
  ASSERT_TRUE(stream->Read(&opened));
  SY_ASSERT_OK_AND_ASSIGN(const ForwardAnswer answer, FromProto(opened));
  const MoeShape shape = std::get<GatewayGrant>(answer).grant.plan.shape;
  // Answers of megabytes, which the window of a connection does not hold.
  constexpr std::uint32_t kTokens = 2048;
  v1::ForwardRequest request;
  v1::ForwardStep* step = request.mutable_step();
  step->set_tokens(kTokens);
  step->set_x(std::string(std::size_t{kTokens} * static_cast<std::size_t>(shape.hidden) * 2, 0));
  step->set_ids(std::string(std::size_t{kTokens} * static_cast<std::size_t>(shape.top_k) * 4, -1));
  step->set_weights(
      std::string(std::size_t{kTokens} * static_cast<std::size_t>(shape.top_k) * 4, 0));
  for (std::uint64_t i = 0; i < 8; ++i) {
    step->set_step(i);
    ASSERT_TRUE(stream->Write(request));
  }
  const auto sessions = [&] {
    grpc::ClientContext ask;
    ask.set_deadline(GrpcDeadline(seconds(20)));
    v1::GetStatusResponse status;
    const auto admin = WorkerAs("admin");
    EXPECT_TRUE(admin->GetStatus(&ask, v1::GetStatusRequest(), &status).ok());
    return status.gateway().sessions();
  };
  ASSERT_EQ(sessions(), 1U);

  Remove("engine-b");
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  while (sessions() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();

  EXPECT_EQ(sessions(), 0U);
  v1::ForwardResponse rest;
  while (stream->Read(&rest)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

// A table that is wrong changes nothing, and streams go on.
TEST_F(TlsStreamsTest, AWrongTableEndsNoStream) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, OpenAs("engine-b"));
  const auto watch = OpenWatch("engine-b", grant);
  ASSERT_TRUE(watch->WaitUntilOpen());

  for (const char* server : {"coordinator", "worker"}) {
    ReplaceFile(absl::StrCat(FolderOf(server), "/", kIdentitiesFile), "identities: []\n");
  }
  EXPECT_FALSE(watch->WaitForEnd(seconds(3)).has_value());
  Remove("engine-b");
  EXPECT_EQ(EndOf(*watch).code(), absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace switchyard
