// What happens to a worker's agent (AgentEvent) and what it wants done (AgentEffect): the whole of
// its contact with the world. Effects of one step are to be carried out in order. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"

#include "core/base/log.h"
#include "core/control_messages.h"
#include "core/ids.h"

namespace switchyard {

// One connection to the coordinator; numbered by the agent, never reused. 0: none.
using DialId = StrongId<struct DialTag, std::uint64_t>;

struct ChannelUp {
  DialId dial;
};
struct ChannelMessage {
  DialId dial;
  CoordinatorMessage message;
};
struct ChannelDown {
  DialId dial;
  absl::Status why;
};
// The answer to StageEpoch.
struct EpochStaged {
  EpochKey key;
  absl::Status status;
};
// After RetireEpoch: nothing is bound to it any more.
struct EpochUnbound {
  EpochKey key;
};
// SIGTERM.
struct LeaveAsked {};
// Time alone; needed at Agent::NextDeadline.
struct AgentTick {
  std::uint64_t progress = 0;  // of the data threads, for the heartbeat
};
using AgentEvent = std::variant<ChannelUp, ChannelMessage, ChannelDown, EpochStaged, EpochUnbound,
                                LeaveAsked, AgentTick>;

struct DialChannel {
  DialId dial;
};
struct SendToCoordinator {
  DialId dial;
  WorkerMessage message;
};
struct HangUpChannel {
  DialId dial;
};
// As the calls of PlanStager.
struct StageEpoch {
  Prepare prepare;
};
struct ActivateEpoch {
  EpochKey key;
};
struct RetireEpoch {
  EpochKey key;
};
struct DropEpoch {
  EpochKey key;
};
// The last effect of all: see AgentRunner's `finished`.
struct AgentFinished {
  absl::Status why;
};
// A line for the log.
struct AgentReport {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};
using AgentEffect = std::variant<DialChannel, SendToCoordinator, HangUpChannel, StageEpoch,
                                 ActivateEpoch, RetireEpoch, DropEpoch, AgentFinished, AgentReport>;

}  // namespace switchyard
