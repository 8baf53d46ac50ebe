// Converts times of steps between core and the wire. Pure; thread-safe.
#pragma once

#include <vector>

#include "core/work_times.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/metrics.pb.h"

namespace switchyard {

// Kinds that a message may have, those of later versions included.
inline constexpr int kWorkTimesMax = 8;

void Encode(const WorkTimes& in, v1::WorkTimes* out);
void Encode(const std::vector<WorkTimes>& in,
            google::protobuf::RepeatedPtrField<v1::WorkTimes>* out);
// Refuses too many entries or buckets, and a kind that comes twice. Kinds of a later version are
// left out.
void Decode(Decoder& at, const google::protobuf::RepeatedPtrField<v1::WorkTimes>& in,
            std::vector<WorkTimes>* out);

}  // namespace switchyard
