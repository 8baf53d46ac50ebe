#include "worker/collective/source_rank.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status NoGraphs() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   "a source with a rank of its own has no graphs; name the worker of its process "
                   "as its host");
}

}  // namespace

absl::Status RankTurn::Record(void* /*capturing*/, const LoggedStep& /*step*/,
                              const ExchangeStep& /*part*/, RecordedSteps* /*graph*/) {
  return NoGraphs();
}

absl::Status RankTurn::BeginLaunch(const std::shared_ptr<const RecordedSteps>& /*graph*/,
                                   const LoggedStep& /*wanted*/, void* /*foreign*/,
                                   TimePoint /*until*/) {
  return NoGraphs();
}

absl::StatusOr<std::uint64_t> RankTurn::EndLaunch(void* /*foreign*/) { return NoGraphs(); }

}  // namespace switchyard
