// Messages in the wrong place of a stream, over real TLS and from callers that may open it: the
// gate sees methods only, so what a stream says is up to its service.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/convert/attach.h"
#include "services/convert/control.h"
#include "services/convert/group.h"
#include "services/convert/session.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
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
using testing::TlsCallers;

const auto kBadRequest = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);

class TlsMessagesTest : public TlsCallers {
 protected:
  void SetUp() override {
    TlsCallers::SetUp();
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->Open({}));
    SY_ASSERT_OK(RunStep(*session_, batch_, 0));
    before_ = batch_.y;
  }
  // The session of another goes on, with the same bits.
  void ExpectNothingHappened() {
    SY_EXPECT_OK(RunStep(*session_, batch_, 0));
    EXPECT_EQ(batch_.y, before_);
  }
  // Sends `messages` on one stream of a worker, and reads until it ends or for `wait`.
  absl::Status Say(const std::string& name, const std::vector<WorkerMessage>& messages,
                   Duration wait = seconds(20)) {
    const auto stub = ControlAs(name);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(wait));
    const auto stream = stub->Session(&context);
    for (const WorkerMessage& message : messages) stream->Write(ToProto(message));
    v1::SessionResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  }
  v1::Worker WorkerOf(const std::string& id) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    v1::ListWorkersResponse response;
    EXPECT_TRUE(
        CoordinatorAs("admin")->ListWorkers(&context, v1::ListWorkersRequest(), &response).ok());
    for (const v1::Worker& worker : response.workers()) {
      if (worker.id() == id) return worker;
    }
    return {};
  }

  std::unique_ptr<MoeSession> session_;
  Batch batch_{4, 7};
  std::vector<float> before_;
};

TEST_F(TlsMessagesTest, NoWorkerRegistersAsAnotherThatLives) {
  const auto held = FailsWith(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld);
  EXPECT_THAT(Say("thief", {Member("w0")}), held);
  // Its incarnation is public, the secret of its first Register is not.
  const v1::Worker w0 = WorkerOf("w0");
  Register posing = Member("w0");
  SY_ASSERT_OK_AND_ASSIGN(posing.incarnation, RandomIdFromHex<Incarnation>(w0.incarnation()));
  EXPECT_THAT(Say("thief", {posing}), held);

  EXPECT_EQ(WorkerOf("w0").endpoint(), w0.endpoint());
  ExpectNothingHappened();
}

TEST_F(TlsMessagesTest, AWorkerJoinsThePoolsOfItsCertificateOnly) {
  std::string table = testing::Table(roles_);
  const std::string row = "spiffe://d/thief, roles: [worker]";
  ASSERT_NE(table.find(row), std::string::npos);
  table.replace(table.find(row), row.size(), row + ", pools: [cpu, spare]");
  ReplaceFile(FolderOf("coordinator") + "/" + kIdentitiesFile, table);
  const auto denied = FailsWith(absl::StatusCode::kPermissionDenied, Reason::kTransport);
  Register member = Member("extra");
  // The coordinator reads its table once a second.
  absl::Status said = Say("thief", {member}, seconds(2));
  for (int i = 0; i < 10 && !absl::IsPermissionDenied(said); ++i) {
    said = Say("thief", {member}, seconds(2));
  }
  EXPECT_THAT(said, denied);
  EXPECT_THAT(std::string(said.message()), HasSubstr("without a pool, only pool cpu or spare"));
  member.pool = "gpu";
  EXPECT_THAT(Say("thief", {member}, seconds(2)), denied);
  member.pool = "cp";
  EXPECT_THAT(Say("thief", {member}, seconds(2)), denied);
  member.pool = "spare";
  EXPECT_TRUE(absl::IsDeadlineExceeded(Say("thief", {member}, seconds(2))));
  // An id without pools joins any.
  member.worker_id = "other";
  member.incarnation = {5, 6};
  member.pool = "gpu";
  EXPECT_FALSE(absl::IsPermissionDenied(Say("worker-b", {member}, seconds(2))));
  ExpectNothingHappened();
}

TEST_F(TlsMessagesTest, AStreamIsOneWorker) {
  const absl::Status twice = Say("thief", {Member("extra"), Member("other")});
  EXPECT_THAT(twice, kBadRequest);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("twice on one stream"));
  EXPECT_EQ(WorkerOf("other").id(), "");
  ExpectNothingHappened();
}

TEST_F(TlsMessagesTest, AnswersComeFromWorkersThatRegistered) {
  EXPECT_THAT(Say("thief", {PrepareAck{"local", Epoch{1}, 1, {}}}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
  EXPECT_THAT(Say("thief", {CommitAck{"local", Epoch{1}, {}}}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
  ExpectNothingHappened();
}

// The worker is a member, and has been asked for none of this.
TEST_F(TlsMessagesTest, AcksOfWhatWasNotPreparedChangeNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session_->Grant());
  std::vector<WorkerMessage> messages{Member("extra")};
  for (const Epoch epoch : {grant.plan.epoch, Epoch{grant.plan.epoch.value + 1}, Epoch{77}}) {
    messages.push_back(PrepareAck{grant.plan.deployment, epoch, 1, grant.hash});
    messages.push_back(CommitAck{grant.plan.deployment, epoch, grant.hash});
    messages.push_back(PrepareNack{grant.plan.deployment, epoch, 1, absl::InternalError("no")});
    messages.push_back(PrepareAck{"nobody's", epoch, 1, grant.hash});
  }
  const absl::Status end = Say("thief", messages, seconds(1));
  EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded) << end;

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, session_->Grant());
  EXPECT_EQ(after.plan.epoch, grant.plan.epoch);
  EXPECT_EQ(after.hash, grant.hash);
  ExpectNothingHappened();
}

// A stream of a gateway has the session that it opened, and no message names another one.
TEST_F(TlsMessagesTest, AStepNeedsTheSessionOfItsStream) {
  const auto gateway = ClientAs("engine-a", "gateway");
  SY_ASSERT_OK_AND_ASSIGN(const auto mine, gateway->OpenWhenReady({}, testing::kReadyTimeout));
  const auto ends = [&](const std::vector<v1::ForwardRequest>& requests) {
    const auto stub = WorkerAs("engine-b");
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stream = stub->Forward(&context);
    for (const v1::ForwardRequest& request : requests) stream->Write(request);
    v1::ForwardResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  };
  v1::ForwardRequest open;
  open.mutable_open();
  v1::ForwardRequest step;
  step.mutable_step()->set_tokens(1);
  EXPECT_THAT(ends({step}), kBadRequest);
  EXPECT_THAT(ends({v1::ForwardRequest()}), kBadRequest);
  EXPECT_THAT(ends({open, open}), kBadRequest);

  Batch batch(4, 8);
  SY_EXPECT_OK(RunStep(*mine, batch, 0));
  ExpectNothingHappened();
}

TEST_F(TlsMessagesTest, AttachmentsAndGroupsBeginWithTheirOpening) {
  const auto attach = [&](const AttachMessage& message) {
    const auto stub = WorkerAs("engine-b");
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    const auto stream = stub->Attach(&context);
    stream->Write(ToProto(message));
    v1::AttachResponse response;
    while (stream->Read(&response)) {
    }
    return StatusFromGrpc(stream->Finish());
  };
  EXPECT_THAT(attach(BindRequest{Epoch{1}, {}}), kBadRequest);
  EXPECT_THAT(attach(ReleaseRequest{Epoch{1}}), kBadRequest);

  const auto stub = WorkerAs("engine-b");
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));
  const auto stream = stub->JoinGroup(&context);
  stream->Write(ToProto(GroupMessage(BindRequest{Epoch{1}, {}})));
  v1::JoinGroupResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_THAT(StatusFromGrpc(stream->Finish()), kBadRequest);
  ExpectNothingHappened();
}

}  // namespace
}  // namespace switchyard
