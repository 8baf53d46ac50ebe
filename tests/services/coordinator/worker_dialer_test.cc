// Dials to real servers on loopback ports.
#include "services/coordinator/worker_dialer.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "tests/testing/silent_port.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::SilentPort;

constexpr Duration kSoon = std::chrono::seconds(20);
const Incarnation kLife{3, 4};

class Worker final : public v1::ExpertService::Service {
 public:
  Worker(std::string id, Incarnation incarnation) : id_(std::move(id)), incarnation_(incarnation) {}
  grpc::Status Identify(grpc::ServerContext* /*context*/, const v1::IdentifyRequest* /*request*/,
                        v1::IdentifyResponse* response) override {
    response->set_worker_id(id_);
    response->set_incarnation(ToHex(incarnation_));
    return grpc::Status::OK;
  }
  grpc::Status DialPeer(grpc::ServerContext* /*context*/, const v1::DialPeerRequest* request,
                        v1::DialPeerResponse* response) override {
    asked = request->worker_id() + " " + request->incarnation() + " " + request->endpoint();
    response->set_reach(reach);
    return answer;
  }
  v1::PeerReach reach = v1::PEER_REACH_REACHED;
  grpc::Status answer;
  std::string asked;

 private:
  const std::string id_;
  const Incarnation incarnation_;
};

class WorkerDialerTest : public ::testing::Test {
 protected:
  // Serves on a port of its own and returns "host:port".
  std::string Serve(grpc::Service* service) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    servers_.push_back(builder.BuildAndStart());
    return absl::StrCat("127.0.0.1:", port);
  }
  // The answer to one dial of worker w3.
  absl::Status Dial(const std::string& endpoint, std::vector<DialWitness> witnesses = {}) {
    auto answer = std::make_shared<std::promise<absl::Status>>();
    dialer_->Dial({"w3", kLife, endpoint, std::move(witnesses)},
                  [answer](const absl::Status& status) { answer->set_value(status); });
    auto result = answer->get_future();
    if (result.wait_for(kSoon) != std::future_status::ready) {
      return absl::InternalError("the dial was not answered");
    }
    return result.get();
  }

  std::vector<std::unique_ptr<grpc::Server>> servers_;
  std::unique_ptr<WorkerDialer> dialer_ =
      std::make_unique<WorkerDialer>(std::chrono::milliseconds(1500));
};

TEST_F(WorkerDialerTest, TheWorkerItselfAnswers) {
  Worker worker("w3", kLife);
  const std::string endpoint = Serve(&worker);

  SY_EXPECT_OK(Dial(endpoint));
  SY_EXPECT_OK(Dial(endpoint));
}

TEST_F(WorkerDialerTest, AnotherWorkerAnswers) {
  Worker worker("w5", kLife);
  const std::string endpoint = Serve(&worker);

  const absl::Status status = Dial(endpoint);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            absl::StrCat("at ", endpoint,
                         " worker w5 answers; check its --listen and --advertise, and that "
                         "firewalls let its peers in"));
}

TEST_F(WorkerDialerTest, AnotherProcessOfTheSameIdAnswers) {
  Worker worker("w3", Incarnation{9, 9});

  const absl::Status status = Dial(Serve(&worker));

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("another process of its id answers"));
}

TEST_F(WorkerDialerTest, WhatAStrangerSaysIsNotRepeated) {
  Worker worker("w5\nworker w3: all is well", kLife);

  const absl::Status status = Dial(Serve(&worker));

  EXPECT_THAT(status.message(), HasSubstr("worker without a name answers"));
}

TEST_F(WorkerDialerTest, AServerOfAnotherKindAnswers) {
  v1::CoordinatorService::Service other;

  const absl::Status status = Dial(Serve(&other));

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no worker of this version"));
}

TEST_F(WorkerDialerTest, AClosedPort) {
  const SilentPort closed;

  const absl::Status status = Dial(closed.endpoint());

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no worker answers"));
}

TEST_F(WorkerDialerTest, APortThatStaysSilentDelaysNoOther) {
  SilentPort silent;
  silent.Listen();
  Worker worker("w3", kLife);
  std::promise<absl::Status> late;
  dialer_->Dial({"w3", kLife, silent.endpoint(), {}},
                [&late](const absl::Status& status) { late.set_value(status); });
  auto answer = late.get_future();

  SY_EXPECT_OK(Dial(Serve(&worker)));
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ASSERT_EQ(answer.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(answer.get().code(), absl::StatusCode::kUnavailable);
}

class WitnessTest : public WorkerDialerTest {
 protected:
  void SetUp() override {
    endpoint_ = Serve(&worker_);
    witnesses_ = {{"w1", Serve(&first_)}, {"w2", Serve(&second_)}};
  }

  Worker worker_{"w3", kLife};
  Worker first_{"w1", kLife};
  Worker second_{"w2", kLife};
  std::string endpoint_;
  std::vector<DialWitness> witnesses_;
};

TEST_F(WitnessTest, TheFirstWhoConnectsIsEnough) {
  SY_EXPECT_OK(Dial(endpoint_, witnesses_));
  EXPECT_EQ(first_.asked, absl::StrCat("w3 ", ToHex(kLife), " ", endpoint_));
  EXPECT_EQ(second_.asked, "");
}

TEST_F(WitnessTest, OneThatCannotConnectMayBeWhatIsWrong) {
  first_.reach = v1::PEER_REACH_NO_ANSWER;

  SY_EXPECT_OK(Dial(endpoint_, witnesses_));
  EXPECT_NE(second_.asked, "");
}

TEST_F(WitnessTest, NobodyCanConnect) {
  first_.reach = v1::PEER_REACH_NO_ROWS;
  second_.reach = v1::PEER_REACH_NO_ANSWER;

  const absl::Status status = Dial(endpoint_, witnesses_);

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("at ", endpoint_,
                         " its peer w1 gets an answer, but no connection to the ports for rows "
                         "(--net-devices, --data-ports); check its --listen and --advertise, and "
                         "that firewalls let its peers in"));
}

TEST_F(WitnessTest, AWitnessThatDoesNotAnswerSaysNothing) {
  const SilentPort closed;
  witnesses_[0].endpoint = closed.endpoint();
  second_.answer = {grpc::StatusCode::UNIMPLEMENTED, "of another version"};
  SY_EXPECT_OK(Dial(endpoint_, witnesses_));

  second_.answer = grpc::Status::OK;
  second_.reach = v1::PEER_REACH_ANOTHER;
  EXPECT_THAT(Dial(endpoint_, witnesses_).message(),
              HasSubstr("another process answers its peer w2"));
  second_.reach = v1::PEER_REACH_UNSPECIFIED;
  SY_EXPECT_OK(Dial(endpoint_, witnesses_));
}

TEST_F(WitnessTest, NobodyIsAskedAboutAWorkerThatDoesNotAnswerHere) {
  const SilentPort closed;

  EXPECT_FALSE(Dial(closed.endpoint(), witnesses_).ok());

  EXPECT_EQ(first_.asked, "");
}

TEST_F(WitnessTest, TheEndCancelsAQuestion) {
  SilentPort silent;
  silent.Listen();
  dialer_ = std::make_unique<WorkerDialer>(kSoon);
  std::promise<absl::Status> answered;
  dialer_->Dial({"w3", kLife, endpoint_, {{"w1", silent.endpoint()}, {"w2", silent.endpoint()}}},
                [&answered](const absl::Status& status) { answered.set_value(status); });

  dialer_.reset();

  EXPECT_EQ(answered.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

TEST_F(WorkerDialerTest, TheEndCancelsAndAnswers) {
  SilentPort silent;
  silent.Listen();
  absl::Status status;
  dialer_->Dial({"w3", kLife, silent.endpoint(), {}},
                [&status](const absl::Status& answer) { status = answer; });

  dialer_.reset();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace switchyard
