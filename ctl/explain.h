// One layer of the committed plan: where its experts live and why its rows travel as they do.
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/plan.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

// As a plan of one layer; it has no names, shape or manifest. Errors: kInvalidArgument
// (BAD_REQUEST) for a message that a coordinator would not send.
absl::StatusOr<Plan> FromProto(const v1::ExplainLayerResponse& proto);

// What would be decided for an edge that the plan does not have.
struct Hypothesis {
  std::string source;  // device profiles
  std::string worker;
  Phase phase = Phase::kMixed;
  std::optional<DispatchConfig> config;  // unset: refused
  absl::Status refusal;
};
// Errors: as FromProto.
absl::StatusOr<std::vector<Hypothesis>> HypothesesFromProto(const v1::ExplainLayerResponse& proto);
// A block for each phase and outcome, with the edges that it holds for. `asked`: "gpu -> npu".
std::string HypothesesText(const std::vector<Hypothesis>& hypotheses, absl::string_view asked,
                           std::size_t width);

// Placement and configs.
std::string DescribeLayerText(const Plan& layer);
// A block for each phase and edge with its reasons, wrapped at `width` characters (0: not), behind
// the placement.
std::string ExplainLayerText(const Plan& layer, std::size_t width);

}  // namespace switchyard::ctl
