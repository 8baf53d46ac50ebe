// The output of 'syctl describe': all that the coordinator knows about one object. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/plan.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

// `width` as in ctl/output/tables.h.
// `serving`: the revision that serves, where that is not the one applied last; else null.
std::string DescribeDeploymentText(const v1::Deployment& deployment, const v1::Revision* serving,
                                   std::size_t width);
std::string DescribeModelText(const v1::Model& model,
                              const std::vector<v1::Deployment>& deployments, std::size_t width);
// `plans`: the plans in which the worker hosts experts.
std::string DescribeWorkerText(const v1::Worker& worker, const std::vector<Plan>& plans);

// For example "17.5 GiB"; "no limit" for 0.
std::string BytesText(std::uint64_t bytes);

}  // namespace switchyard::ctl
