// Converts reports of load between core and the wire. Pure; thread-safe.
#pragma once

#include "core/load_report.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/worker_control.pb.h"

namespace switchyard {

void Encode(const LoadReport& in, v1::LoadReport* out);
// Refuses lists of different lengths, and more than kLoadExpertsMax experts.
void Decode(Decoder& at, const v1::LoadReport& in, LoadReport* out);

}  // namespace switchyard
