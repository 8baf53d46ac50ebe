#include "worker/collective/source/step_rounds.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"
#include "worker/collective/step_log.h"

namespace switchyard {
namespace {

static_assert(kCudaGroupLimits.normal_tokens_max <= LoggedStep::kCoverMax &&
              kHostGroupLimits.normal_tokens_max <= LoggedStep::kCoverMax &&
              kHostGroupLimits.tokens_max <= LoggedStep::kCoverMax);

// The steps back to which a device keeps what it has found wrong in ids (Exchange::CheckIds).
constexpr std::uint64_t kStepsChecked = 1024;

}  // namespace

StepRequest RoundOf(const StepRequest& request, const MoeShape& shape, OutputDtype y_dtype,
                    std::int32_t first, std::int32_t at_once) {
  StepRequest round = request;
  round.tokens = std::min(request.tokens - first, at_once);
  const auto before = static_cast<std::size_t>(first);
  const std::size_t values = before * static_cast<std::size_t>(shape.hidden);
  const std::size_t choices = before * static_cast<std::size_t>(shape.top_k);
  round.x += values;
  round.ids += choices;
  round.weights += choices;
  round.y = static_cast<std::byte*>(round.y) + values * (y_dtype == OutputDtype::kF32 ? 4 : 2);
  return round;
}

absl::Status CheckRoundIds(const StepRounds& rounds, std::uint64_t made, const Exchange& exchange) {
  if (made > rounds.numbers.front() + kStepsChecked) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                     absl::StrFormat("the step was taken when its group had made %d more, and its "
                                     "ids can no longer be checked; take steps sooner",
                                     made - rounds.numbers.front() - 1));
  }
  std::int32_t first_row = 0;
  for (const std::uint64_t number : rounds.numbers) {
    SY_RETURN_IF_ERROR(exchange.CheckIds(number, first_row));
    first_row += rounds.at_once;
  }
  return absl::OkStatus();
}

}  // namespace switchyard
