// The channels of sources and agents over gRPC. Endpoints are "host:port".
//
// Connecting does not block. An unreachable endpoint is reported as kUnavailable (COORDINATOR_LOST
// or WORKER_LOST), through the sink or by the call. A message over its size limit ends its stream
// with kResourceExhausted (MESSAGE_TOO_LARGE). A channel must outlive its streams. A stream may be
// destroyed from within its sink, but not while holding a lock that the sink takes. Without
// `security` connections are plain; with it, a server without the role that it has to have counts
// as unreachable.
#pragma once

#include <memory>
#include <string>

#include "services/security/transport_security.h"
#include "worker/agent/agent_channel.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_channel.h"

namespace switchyard {

// For a worker's agent: the control stream.
std::unique_ptr<AgentChannel> MakeGrpcAgentChannel(
    const std::string& coordinator, const std::shared_ptr<const TransportSecurity>& security = {});

// Without a coordinator (""), only the calls to workers are available, which is enough for a
// gateway's caller. Calls to the coordinator then fail with kInvalidArgument (BAD_REQUEST).
std::unique_ptr<SessionChannel> MakeGrpcSessionChannel(
    const std::string& coordinator, const std::shared_ptr<const TransportSecurity>& security = {});

// Sends steps through workers.
std::unique_ptr<StepChannel> MakeGrpcStepChannel(
    const std::shared_ptr<const TransportSecurity>& security = {});

}  // namespace switchyard
