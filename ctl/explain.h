// The output of 'syctl explain': where a layer's experts live, how its rows travel, and why.
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

// Converts the response to a plan with one layer and without names, shape and manifest. REQUIRES:
// the deployment has a plan (epoch is not 0). Errors: kInvalidArgument (BAD_REQUEST) for an invalid
// response.
absl::StatusOr<Plan> FromProto(const v1::ExplainLayerResponse& proto);

// The decision for an edge that the plan does not have.
struct Hypothesis {
  std::string source;  // device profiles
  std::string worker;
  Phase phase = Phase::kMixed;
  std::optional<DispatchConfig> config;  // unset: refused, see `refusal`
  absl::Status refusal;
  std::string page;  // every step of the decision; empty if the coordinator sent none
};
// Errors: as FromProto.
absl::StatusOr<std::vector<Hypothesis>> HypothesesFromProto(const v1::ExplainLayerResponse& proto);
// One block for each phase and outcome, with its edges, the reasons, and the page of the first
// edge. `why`: the reason why there are only hypotheses, for example "the plan has no edge gpu ->
// npu".
std::string HypothesesText(const std::vector<Hypothesis>& hypotheses, absl::string_view why,
                           std::size_t width);

// Placement and configs.
std::string DescribeLayerText(const Plan& layer);
// One block for each phase and edge with the plan's reasons, wrapped at `width` characters (0: not
// wrapped), and the page of the decision. After the blocks: the placement, and the decisions for
// the deployment as currently applied if they differ from the plan that serves.
std::string ExplainLayerText(const v1::ExplainLayerResponse& response, const Plan& layer,
                             std::size_t width);
// For a deployment without a plan: what it waits for, and the page of each phase and edge.
std::string ExplainWithoutPlanText(const v1::ExplainLayerResponse& response);
// Removes the pages, which only repeat the fields. For JSON output.
v1::ExplainLayerResponse WithoutPages(v1::ExplainLayerResponse response);

}  // namespace switchyard::ctl
