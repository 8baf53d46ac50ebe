// Converts reports of staging between core and the wire. Pure; thread-safe.
#pragma once

#include "core/control_messages.h"
#include "services/convert/decoder.h"
#include "switchyard/v1/progress.pb.h"

namespace switchyard {

void Encode(const StagingReport& in, v1::StagingReport* out);
// Refuses a report that has loaded more than there is to load.
void Decode(Decoder& at, const v1::StagingReport& in, StagingReport* out);

}  // namespace switchyard
