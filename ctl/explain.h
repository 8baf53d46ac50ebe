// One layer of a deployment: where its experts live and why its rows travel as they do.
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

// As a plan of one layer; it has no names, shape or manifest. `proto` is of a deployment that has a
// plan: its epoch is not 0. Errors: kInvalidArgument (BAD_REQUEST) for a message that a coordinator
// would not send.
absl::StatusOr<Plan> FromProto(const v1::ExplainLayerResponse& proto);

// What would be decided for an edge that the plan does not have.
struct Hypothesis {
  std::string source;  // device profiles
  std::string worker;
  Phase phase = Phase::kMixed;
  std::optional<DispatchConfig> config;  // unset: refused
  absl::Status refusal;
  std::string page;  // every step that led there; empty: the coordinator sent none
};
// Errors: as FromProto.
absl::StatusOr<std::vector<Hypothesis>> HypothesesFromProto(const v1::ExplainLayerResponse& proto);
// A block for each phase and outcome, with the edges that it holds for, the reasons, and the page
// of the first edge. `why`: why there is nothing to show but hypotheses, "the plan has no edge gpu
// -> npu".
std::string HypothesesText(const std::vector<Hypothesis>& hypotheses, absl::string_view why,
                           std::size_t width);

// Placement and configs.
std::string DescribeLayerText(const Plan& layer);
// A block for each phase and edge with the plan's reasons, wrapped at `width` characters (0: not),
// and the page of the decision that led to them; the placement behind the blocks; and what the
// deployment as applied comes to now where that is not what serves.
std::string ExplainLayerText(const v1::ExplainLayerResponse& response, const Plan& layer,
                             std::size_t width);
// Of a deployment without a plan: what it waits for, and the page of each phase and edge.
std::string ExplainWithoutPlanText(const v1::ExplainLayerResponse& response);
// `response` for programs: without the pages, which say what its fields say.
v1::ExplainLayerResponse WithoutPages(v1::ExplainLayerResponse response);

}  // namespace switchyard::ctl
