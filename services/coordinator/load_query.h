// The coordinator's call about the load of a deployment.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "coordinator/history/load_history.h"
#include "coordinator/view.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// Bounds of one answer: as many samples, and fewer where they take more than the bytes, but one.
inline constexpr std::size_t kLoadSamplesMax = 16;
inline constexpr std::size_t kLoadAnswerBytesMax = std::size_t{2} << 20;

// `load` is Driver::Load. Pure otherwise; thread-safe. Errors: those of GetDeployment
// (services/coordinator/admin_queries.h).
absl::StatusOr<v1::GetLoadResponse> GetLoad(
    const CoordinatorView& view, const v1::GetLoadRequest& request,
    const std::function<LoadView(const std::string& deployment, const LoadQuery& query)>& load);

}  // namespace switchyard
