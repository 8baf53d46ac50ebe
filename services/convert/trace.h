// Decision traces to the wire, with the page that people read. They are only encoded: whoever asks
// prints them. Pure; thread-safe.
#pragma once

#include "core/resolve/decision_trace.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

void Encode(const Warning& in, v1::DispatchWarning* out);
void Encode(const DecisionTrace& in, v1::DispatchTrace* out);

}  // namespace switchyard
