// The output of 'syctl get': one line for each object. Pure; thread-safe.
//
// `width` is the terminal's width in characters; 0: no limit.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "core/plan.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

// An empty list gives a sentence with the command that adds an entry.
// `wide` adds columns.
std::string DeploymentsTable(const v1::ListDeploymentsResponse& list, std::size_t width,
                             bool wide = false);
std::string ModelsTable(const v1::ListModelsResponse& list);
std::string WorkersTable(const v1::ListWorkersResponse& list, bool wide = false);
// One line for each MoE layer: number of experts and workers, and how rows travel in each phase.
std::string LayersTable(const Plan& plan);
// Head, placement and configs; identical layers share a line.
std::string PlanText(const Plan& plan, const PlanHash& hash);

struct HashedPlan {
  Plan plan;
  PlanHash hash;
};
// Errors: kInvalidArgument (BAD_REQUEST) for an invalid response.
absl::StatusOr<HashedPlan> FromProto(const v1::GetPlanResponse& proto);

// How rows of one config travel, for example "normal bf16".
std::string HowText(const DispatchConfig& config);

}  // namespace switchyard::ctl
