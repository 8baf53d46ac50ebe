// A worker's account of itself on the wire. Only encoded: its readers print it.
#pragma once

#include "switchyard/v1/expert.pb.h"
#include "worker/expert/expert_service.h"

namespace switchyard {

void Encode(const ExpertServiceView& in, v1::GetStatusResponse* out);

}  // namespace switchyard
