#include "tests/reference/masked_ffn.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status Refuse(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason,
                   absl::StrCat("unquantized experts: ", what));
}

std::string Dims(std::span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

absl::StatusOr<MaskedFfn> MaskedFfn::Create(DeviceBackend* device, const MoeShape& shape,
                                            std::vector<const PackedExpert*> experts,
                                            std::int64_t rows_max) {
  return MaskedFfn(device, shape, std::move(experts), rows_max);
}

MaskedFfn::MaskedFfn(DeviceBackend* device, const MoeShape& shape,
                     std::vector<const PackedExpert*> experts, std::int64_t rows_max)
    : device_(device), shape_(shape), experts_(std::move(experts)), rows_max_(rows_max) {
  rows_.resize(static_cast<std::size_t>(rows_max));
  batches_.reserve(experts_.size());
}

absl::Status MaskedFfn::CheckKind(const FfnInput& input) const {
  if (input.scales != nullptr) {
    return Refuse(
        Reason::kUnsupported,
        "the rows come with scales; ask dispatch for BF16 rows (dispatcher_output_dtype)");
  }
  if (input.activation != FfnActivation::kSilu) {
    return Refuse(Reason::kUnsupported, "only silu is computed between gate and down");
  }
  if (!input.gated) return Refuse(Reason::kUnsupported, "experts without a gate are not computed");
  if (input.rows.size() != experts_.size()) {
    return Refuse(Reason::kBadShape, absl::StrCat("row counts for ", input.rows.size(),
                                                  " experts, there are ", experts_.size()));
  }
  if (!input.shape.empty() && input.shape.back() != shape_.hidden) {
    return Refuse(Reason::kBadShape,
                  absl::StrCat("x is ", Dims(input.shape), ", rows have hidden ", shape_.hidden));
  }
  const auto negative = std::find_if(input.rows.begin(), input.rows.end(),
                                     [](std::int32_t rows) { return rows < 0; });
  if (negative != input.rows.end()) {
    return Refuse(Reason::kBadShape, absl::StrCat("expert ", negative - input.rows.begin(), " has ",
                                                  *negative, " rows"));
  }
  const std::int64_t all = std::accumulate(input.rows.begin(), input.rows.end(), std::int64_t{0});
  if (all <= rows_max_) return absl::OkStatus();
  return Refuse(Reason::kBadShape, absl::StrCat(all, " rows, this FFN was made for ", rows_max_));
}

absl::Status MaskedFfn::RunLowLatency(const FfnInput& input, float* y) {
  SY_RETURN_IF_ERROR(CheckKind(input));
  const auto experts = static_cast<std::int64_t>(experts_.size());
  if (input.shape.size() != 3 || input.shape[0] != experts) {
    return Refuse(Reason::kBadShape, absl::StrCat("x is ", Dims(input.shape), ", low_latency has [",
                                                  experts, ", rows, ", shape_.hidden, "]"));
  }
  for (std::size_t e = 0; e < input.rows.size(); ++e) {
    if (input.rows[e] <= input.shape[1]) continue;
    return Refuse(Reason::kBadShape, absl::StrCat("expert ", e, " has ", input.rows[e],
                                                  " rows in a block of ", input.shape[1]));
  }
  Run(input, input.shape[1], y);
  return absl::OkStatus();
}

absl::Status MaskedFfn::RunNormal(const FfnInput& input, float* y) {
  SY_RETURN_IF_ERROR(CheckKind(input));
  const std::int64_t all = std::accumulate(input.rows.begin(), input.rows.end(), std::int64_t{0});
  if (input.shape.size() != 2 || input.shape[0] != all) {
    return Refuse(Reason::kBadShape, absl::StrCat("x is ", Dims(input.shape), ", normal has [", all,
                                                  ", ", shape_.hidden, "]"));
  }
  Run(input, 0, y);
  return absl::OkStatus();
}

// `block_rows`: rows from one expert's first to the next one's; 0: as many as it has.
void MaskedFfn::Run(const FfnInput& input, std::int64_t block_rows, float* y) {
  batches_.clear();
  std::size_t gathered = 0;
  std::int64_t first = 0;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const std::int64_t count = input.rows[e];
    const std::int64_t block = block_rows == 0 ? count : block_rows;
    const std::size_t begin = gathered;
    for (std::int64_t row = 0; row < count; ++row) {
      rows_[gathered++] = input.x + (first + row) * shape_.hidden;
    }
    if (count > 0) {
      batches_.push_back({.expert = experts_[e],
                          .rows = std::span(rows_).subspan(begin, gathered - begin),
                          .out = y + first * shape_.hidden});
    }
    std::fill_n(y + (first + count) * shape_.hidden, (block - count) * shape_.hidden, 0.0F);
    first += block;
  }
  testing::RunOnDevice(*device_, shape_, batches_);
}

}  // namespace switchyard
