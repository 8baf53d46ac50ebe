// Converts settings of traces between core and the wire. Pure; thread-safe.
#pragma once

#include "core/trace_settings.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/tracing.pb.h"

namespace switchyard {

void Encode(const TraceSettings& in, v1::Tracing* out);
// Refuses a ratio that is no number from 0 to 1.
void Decode(Decoder& at, const v1::Tracing& in, TraceSettings* out);

}  // namespace switchyard
