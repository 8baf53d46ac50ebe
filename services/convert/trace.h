// Encodes decision traces for the wire, with the page of text for people. They are never decoded:
// clients print them. Pure; thread-safe.
#pragma once

#include "core/resolve/decision_trace.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

void Encode(const Warning& in, v1::DispatchWarning* out);
// Fills the structured fields and the page of text. O(rules of the trace).
void Encode(const DecisionTrace& in, v1::DispatchTrace* out);

}  // namespace switchyard
