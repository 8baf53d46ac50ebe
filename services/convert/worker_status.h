// Encodes a worker's status for the wire. It is never decoded: clients print it. Pure; thread-safe.
#pragma once

#include "switchyard/v1/expert.pb.h"
#include "worker/expert/expert_service.h"

namespace switchyard {

// All counters are totals since the process started, except open attachments.
void Encode(const ExpertServiceView& in, v1::GetStatusResponse* out);

}  // namespace switchyard
