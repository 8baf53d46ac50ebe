// What 'syctl get' prints: a line for each thing. Pure; thread-safe.
//
// `width` is that of the terminal, in characters; 0: lines may be as long as they like.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "core/plan.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

std::string DeploymentsTable(const v1::ListDeploymentsResponse& list, std::size_t width);
std::string ModelsTable(const v1::ListModelsResponse& list);
std::string WorkersTable(const v1::ListWorkersResponse& list);
// A line for each MoE layer: how many experts, on how many workers, how rows travel in each phase.
std::string LayersTable(const Plan& plan);
// Head, placement and configs; layers that are alike share a line.
std::string PlanText(const Plan& plan, const PlanHash& hash);

struct HashedPlan {
  Plan plan;
  PlanHash hash;
};
// Errors: kInvalidArgument (BAD_REQUEST) for a message that a coordinator would not send.
absl::StatusOr<HashedPlan> FromProto(const v1::GetPlanResponse& proto);

// "normal bf16" for rows of one config.
std::string HowText(const DispatchConfig& config);

}  // namespace switchyard::ctl
