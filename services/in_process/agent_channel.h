// A worker's agent and the coordinator's driver in one process: calls instead of a stream.
#pragma once

#include <memory>

#include "coordinator/driver.h"
#include "worker/agent/agent_channel.h"

namespace switchyard {

// `driver` outlives the channel and its streams. Thread-safe.
std::unique_ptr<AgentChannel> MakeInProcessAgentChannel(Driver* driver);

}  // namespace switchyard
