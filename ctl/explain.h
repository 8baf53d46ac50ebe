// One layer of the committed plan: where its experts live and why its rows travel as they do.
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/plan.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

// As a plan of one layer; it has no names, shape or manifest. Errors: kInvalidArgument
// (BAD_REQUEST) for a message that a coordinator would not send.
absl::StatusOr<Plan> FromProto(const v1::ExplainLayerResponse& proto);

// Placement and configs.
std::string DescribeLayerText(const Plan& layer);
// A block for each phase and edge with its reasons, wrapped at `width` characters (0: not), behind
// the placement.
std::string ExplainLayerText(const Plan& layer, std::size_t width);

}  // namespace switchyard::ctl
