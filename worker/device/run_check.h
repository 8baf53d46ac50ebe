// The errors of Stream::Run that every device has in common.
#pragma once

#include "absl/status/status.h"

#include "core/moe_shape.h"
#include "worker/device/stream.h"

namespace switchyard {

// `shape`: what the run's workspace was made for. Errors: kInvalidArgument (BAD_TOP_K, BAD_SHAPE)
// for a width or a table that does not fit it; kUnimplemented (UNSUPPORTED) for FP32 sums.
absl::Status CheckRun(const ExpertRun& run, const MoeShape& shape);

}  // namespace switchyard
