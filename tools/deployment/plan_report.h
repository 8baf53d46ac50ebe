// A plan as text for people: the placement of experts, and how rows of each layer travel and why.
#pragma once

#include <string>

#include "core/dispatch_config.h"
#include "core/session_messages.h"

namespace switchyard::qwen3_moe {

// How rows of a session travel: by `config` of its plan, but in the mode that it was opened with. A
// reason for another mode than the plan's comes first in the trail.
DispatchConfig ConfigOfSession(DispatchConfig config, const OpenSessionRequest& request);

// Ends with a newline.
std::string DescribePlan(const SessionGrant& prefill, const SessionGrant& decode);

}  // namespace switchyard::qwen3_moe
