// A worker dials another one, both real gRPC servers on loopback ports.
#include "services/worker/peer_dial.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

#include "services/grpc/grpc_status.h"
#include "services/worker/test_ports.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "tests/services/worker_fixture.h"
#include "tests/testing/silent_port.h"

namespace switchyard {
namespace {

using std::chrono::seconds;

// A worker that offers test ports of its own choice.
class Peer final : public v1::ExpertService::Service {
 public:
  grpc::Status Identify(grpc::ServerContext* /*context*/, const v1::IdentifyRequest* request,
                        v1::IdentifyResponse* response) override {
    response->set_worker_id("w2");
    response->set_incarnation(ToHex(testing::IncarnationOf(2)));
    if (request->open_test_ports()) response->add_test_ports(test_port);
    return grpc::Status::OK;
  }
  std::string test_port;
};

class DialPeerTest : public testing::WorkerFixture {
 protected:
  void SetUp() override {
    WorkerFixture::SetUp();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&peer_);
    peer_server_ = builder.BuildAndStart();
    peer_endpoint_ = absl::StrCat("127.0.0.1:", port);
  }
  // What w1 says of w2 at `endpoint`.
  v1::PeerReach Dial(const std::string& endpoint, std::int32_t life = 2) {
    const auto stub =
        v1::ExpertService::NewStub(MakeGrpcChannel(endpoint_, kControlMessageBytesMax));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(seconds(20)));
    v1::DialPeerRequest request;
    request.set_worker_id("w2");
    request.set_incarnation(ToHex(testing::IncarnationOf(life)));
    request.set_endpoint(endpoint);
    v1::DialPeerResponse response;
    SY_EXPECT_OK(StatusFromGrpc(stub->DialPeer(&context, request, &response)));
    return response.reach();
  }

  Peer peer_;
  std::unique_ptr<grpc::Server> peer_server_;
  std::string peer_endpoint_;
};

TEST_F(DialPeerTest, SaysHowFarItComes) {
  TestPorts ports({"127.0.0.1"}, {});
  peer_.test_port = ports.Open(clock_.Now()).at(0);
  EXPECT_EQ(Dial(peer_endpoint_), v1::PEER_REACH_REACHED);
  EXPECT_EQ(Dial(peer_endpoint_, 3), v1::PEER_REACH_ANOTHER);

  const testing::SilentPort closed;
  peer_.test_port = closed.endpoint();
  EXPECT_EQ(Dial(peer_endpoint_), v1::PEER_REACH_NO_ROWS);
  EXPECT_EQ(Dial(closed.endpoint()), v1::PEER_REACH_NO_ANSWER);
}

TEST_F(DialPeerTest, AWorkerOpensTestPortsWhereItsRowsArrive) {
  const auto stub = v1::ExpertService::NewStub(MakeGrpcChannel(endpoint_, kControlMessageBytesMax));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(seconds(20)));
  v1::IdentifyRequest request;
  request.set_open_test_ports(true);
  v1::IdentifyResponse response;

  SY_ASSERT_OK(StatusFromGrpc(stub->Identify(&context, request, &response)));

  const std::vector<std::string> ports(response.test_ports().begin(), response.test_ports().end());
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_TRUE(ConnectsToAny(ports, seconds(20)));
}

TEST_F(DialPeerTest, HostileRequestsAreAnswered) {
  peer_.test_port = "\x01:7";
  EXPECT_EQ(Dial(peer_endpoint_), v1::PEER_REACH_NO_ROWS);
  for (const char* const bad : {"", "x", "unix:x", "[::", "127.0.0.1:0"}) {
    EXPECT_EQ(Dial(bad), v1::PEER_REACH_NO_ANSWER) << bad;
  }
}

}  // namespace
}  // namespace switchyard
