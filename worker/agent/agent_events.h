// Inputs (AgentEvent) and outputs (AgentEffect) of a worker's agent. They are its only contact with
// threads, clocks and the network. The effects of one step must be performed in order. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/trace_settings.h"

namespace switchyard {

// Number of one connection to the coordinator. The agent assigns it and never reuses it, so that a
// late event of an earlier connection can be recognized and ignored. 0: none.
using DialId = StrongId<struct DialTag, std::uint64_t>;

// The coordinator has been reached.
struct ChannelUp {
  DialId dial;
};
// A message from the coordinator.
struct ChannelMessage {
  DialId dial;
  CoordinatorMessage message;
};
// The connection failed or ended.
struct ChannelDown {
  DialId dial;
  // As the coordinator ended it, or the transport's error.
  absl::Status why;
};
// StageEpoch has completed; `status` is its result.
struct EpochStaged {
  EpochKey key;
  // OK: the epoch can be activated. Otherwise the stager has freed everything.
  absl::Status status;
};
// After RetireEpoch: no attachment is bound to the epoch any more.
struct EpochUnbound {
  EpochKey key;
};
// The process received SIGTERM and wants to leave.
struct LeaveRequested {};
// Time has passed. Must be delivered at Agent::NextDeadline.
struct AgentTick {
  Heartbeat heartbeat = {};  // what the next one says
  bool in_use = false;       // PlanStager::IsInUse
};
// One input of the agent.
using AgentEvent = std::variant<ChannelUp, ChannelMessage, ChannelDown, EpochStaged, EpochUnbound,
                                LeaveRequested, AgentTick>;

// Connect to the coordinator.
struct DialChannel {
  DialId dial;
};
// Send on the connection `dial`. Discard the message if that connection is gone.
struct SendToCoordinator {
  DialId dial;
  WorkerMessage message;
};
// Close the connection `dial`.
struct HangUpChannel {
  DialId dial;
};
// The next six are calls of PlanStager.
// Load and verify an epoch; EpochStaged follows.
struct StageEpoch {
  Prepare prepare;
};
// Serve an epoch that was staged.
struct ActivateEpoch {
  EpochKey key;
};
// Stop serving an epoch; EpochUnbound follows.
struct RetireEpoch {
  EpochKey key;
};
// The bindings of a retiring epoch have to end soon; EpochUnbound follows.
struct ShortenRetire {
  EpochKey key;
  Duration within{};
};
// Free an epoch in any state.
struct DropEpoch {
  EpochKey key;
};
// Trace steps as the coordinator says.
struct UseTracing {
  TraceSettings settings;
};
// The last effect: see `finished` of AgentRunner.
struct AgentFinished {
  absl::Status why;
};
// Write a line to the log.
struct AgentReport {
  LogLevel level = LogLevel::kInfo;
  std::string text;
  LogFields fields = {};
};
// One output of the agent.
using AgentEffect =
    std::variant<DialChannel, SendToCoordinator, HangUpChannel, StageEpoch, ActivateEpoch,
                 RetireEpoch, ShortenRetire, DropEpoch, UseTracing, AgentFinished, AgentReport>;

}  // namespace switchyard
