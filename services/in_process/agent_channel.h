// The channel between a worker's agent and the coordinator's driver in one process. It uses direct
// calls instead of a gRPC stream, so that tests and single-process deployments need no ports.
#pragma once

#include <memory>

#include "coordinator/driver.h"
#include "worker/agent/agent_channel.h"

namespace switchyard {

// `driver` must outlive the channel and its streams. Thread-safe.
std::unique_ptr<AgentChannel> MakeInProcessAgentChannel(Driver* driver);

}  // namespace switchyard
