#include "services/worker/peer_dial.h"

#include <chrono>
#include <string>
#include <vector>

#include "grpcpp/client_context.h"

#include "core/base/dial_address.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_server.h"
#include "services/worker/test_ports.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {
namespace {

constexpr Duration kIdentify = std::chrono::milliseconds(1500);
// A lost attempt is repeated by the kernel after one second.
constexpr Duration kConnect = std::chrono::milliseconds(1500);

}  // namespace

v1::PeerReach DialPeer(const v1::DialPeerRequest& request,
                       const std::shared_ptr<const TransportSecurity>& security) {
  // gRPC would also open sockets of this host, which are nobody's business who only asks.
  if (!WhyNotDialable(request.endpoint()).empty()) return v1::PEER_REACH_NO_ANSWER;
  const auto stub = v1::ExpertService::NewStub(
      MakeGrpcChannel(request.endpoint(), kControlMessageBytesMax, {}, {security, Role::kWorker}));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kIdentify));
  v1::IdentifyRequest identify;
  identify.set_open_test_ports(true);
  v1::IdentifyResponse answer;
  const grpc::Status status = stub->Identify(&context, identify, &answer);
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return v1::PEER_REACH_ANOTHER;
  if (!status.ok()) return v1::PEER_REACH_NO_ANSWER;
  if (answer.worker_id() != request.worker_id() || answer.incarnation() != request.incarnation()) {
    return v1::PEER_REACH_ANOTHER;
  }
  const std::vector<std::string> ports(answer.test_ports().begin(), answer.test_ports().end());
  if (ports.empty() || ConnectsToAny(ports, kConnect)) return v1::PEER_REACH_REACHED;
  return v1::PEER_REACH_NO_ROWS;
}

}  // namespace switchyard
