#include "worker/device/run_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "worker/device/device_backend.h"

namespace switchyard {
namespace {

absl::Status BadRun(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrFormat("run: %s", what));
}

}  // namespace

absl::Status CheckRun(const ExpertRun& run, const MoeShape& shape) {
  if (run.width < 1 || run.width > std::max(shape.top_k, 1)) {
    return BadRun(
        Reason::kBadTopK,
        absl::StrFormat("%d slots per row; the workspace was made for %d", run.width, shape.top_k));
  }
  if (run.experts->slots() > std::max(shape.experts, 1)) {
    return BadRun(Reason::kBadShape,
                  absl::StrFormat("a table of %d experts; the workspace was made for %d",
                                  run.experts->slots(), shape.experts));
  }
  // The answer has one row for an input row, so a second slot would have no place for its result.
  if (run.combine == CombineUnit::kPerExpert && run.width != 1) {
    return BadRun(Reason::kBadTopK, "a row for each expert has one slot");
  }
  if (run.out_dtype == OutputDtype::kF32 && run.combine == CombineUnit::kPerWorker) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "sums over a worker's experts are returned in BF16 only");
  }
  return absl::OkStatus();
}

}  // namespace switchyard
