// A plan as text for people: the placement of experts, and how rows of each layer travel and why.
#pragma once

#include <string>

#include "core/session_messages.h"

namespace switchyard::qwen3_moe {

// Ends with a newline.
std::string DescribePlan(const SessionGrant& prefill, const SessionGrant& decode);

}  // namespace switchyard::qwen3_moe
