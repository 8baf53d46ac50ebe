// The channels of a source and an agent over gRPC. Endpoints are "host:port".
//
// Nothing blocks while connecting: an endpoint that cannot be reached comes as kUnavailable
// (COORDINATOR_LOST or WORKER_LOST) through the sink or the call. A message over its limit ends its
// stream with kResourceExhausted (MESSAGE_TOO_LARGE). A channel outlives its streams. A stream may
// be destroyed from within its sink, but not with a lock that the sink takes.
#pragma once

#include <memory>
#include <string>

#include "worker/agent/agent_channel.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_channel.h"

namespace switchyard {

std::unique_ptr<AgentChannel> MakeGrpcAgentChannel(const std::string& coordinator);

// Without a coordinator ("") workers can be attached to and asked, as a gateway's caller does; what
// the coordinator would answer is kInvalidArgument (BAD_REQUEST).
std::unique_ptr<SessionChannel> MakeGrpcSessionChannel(const std::string& coordinator);

// Steps through the worker at `gateway`.
std::unique_ptr<StepChannel> MakeGrpcStepChannel(const std::string& gateway);

}  // namespace switchyard
