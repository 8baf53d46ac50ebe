// The metrics of a program as messages, for syctl.
#pragma once

#include "services/system/metrics_text.h"
#include "switchyard/v1/metrics.pb.h"

namespace switchyard {

// Pure.
void Encode(const MetricFamily& in, v1::Metric* out);

}  // namespace switchyard
