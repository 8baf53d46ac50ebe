#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/base/status_macros.h"
#include "core/format/calc_diff.h"
#include "examples/qwen3_moe/experts_call.h"
#include "examples/qwen3_moe/router.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The logits next to the boundary between the chosen experts and the others.
struct Cut {
  float last_chosen = std::numeric_limits<float>::infinity();
  float first_left = -std::numeric_limits<float>::infinity();
};

bool Contains(std::span<const std::int32_t> ids, std::size_t expert) {
  return std::find(ids.begin(), ids.end(), static_cast<std::int32_t>(expert)) != ids.end();
}

// Without other experts both values stay infinite, so there is no near tie.
Cut CutOf(std::span<const float> logits, std::span<const std::int32_t> chosen) {
  Cut cut;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    if (Contains(chosen, e)) {
      cut.last_chosen = std::min(cut.last_chosen, logits[e]);
    } else {
      cut.first_left = std::max(cut.first_left, logits[e]);
    }
  }
  return cut;
}

// One row of a block with our routing.
struct Row {
  std::span<const float> x;
  std::span<const float> wanted;
  std::span<const float> logits;
  std::span<const std::int32_t> ids;
};

// The weights follow from the logits of the tried experts, as if the router had chosen them.
// The sums for `row` if it is routed to `ids`.
absl::StatusOr<DiffSums> SumsWith(const BlockCheck& check, const Row& row,
                                  std::vector<std::int32_t> ids) {
  Routing routing{.top_k = ids.size(),
                  .ids = std::move(ids),
                  .weights = std::vector<float>(row.ids.size()),
                  .logits = {}};
  WeighRow(row.logits, check.router.rule(), {.ids = routing.ids, .weights = routing.weights});
  std::vector<float> y(row.x.size(), kNan);
  SY_RETURN_IF_ERROR(
      RunExperts({.layer = check.block.layer, .x = row.x, .routing = routing, .y = y}, check.moe));
  DiffSums sums;
  sums.Add(y, row.wanted);
  return sums;
}

// Tries to replace each chosen expert near the boundary by each other expert near it, until a row
// is within the bound. Sets `best` to the closest result. Several experts can be near the boundary,
// so trying only k and k+1 is not enough.
absl::StatusOr<bool> TryOtherChoices(const BlockCheck& check, const Row& row, DiffSums& best) {
  const Cut cut = CutOf(row.logits, row.ids);
  for (std::size_t k = 0; k < row.ids.size(); ++k) {
    const float chosen = row.logits[static_cast<std::size_t>(row.ids[k])];
    if (!(chosen - cut.first_left < check.bounds.near_tie)) continue;
    for (std::size_t e = 0; e < row.logits.size(); ++e) {
      if (Contains(row.ids, e)) continue;
      if (!(cut.last_chosen - row.logits[e] < check.bounds.near_tie)) continue;
      std::vector<std::int32_t> ids(row.ids.begin(), row.ids.end());
      ids[k] = static_cast<std::int32_t>(e);
      SY_ASSIGN_OR_RETURN(const DiffSums sums, SumsWith(check, row, std::move(ids)));
      if (std::isnan(best.Diff()) || sums.Diff() < best.Diff()) best = sums;
      if (best.Diff() <= check.bounds.row_diff_max) return true;
    }
  }
  return false;
}

// Fills `result` from the answer `y`.
absl::Status Compare(const BlockCheck& check, const Routing& routing, std::span<const float> y,
                     BlockResult& result) {
  const std::size_t width = y.size() / result.rows;
  const std::size_t experts = check.router.experts();
  DiffSums pooled;
  for (std::size_t r = 0; r < result.rows; ++r) {
    const Row row{.x = std::span(check.data.in).subspan(r * width, width),
                  .wanted = std::span(check.data.out).subspan(r * width, width),
                  .logits = std::span(routing.logits).subspan(r * experts, experts),
                  .ids = std::span(routing.ids).subspan(r * routing.top_k, routing.top_k)};
    DiffSums sums;
    sums.Add(y.subspan(r * width, width), row.wanted);
    const Cut cut = CutOf(row.logits, row.ids);
    if (cut.last_chosen - cut.first_left < check.bounds.near_tie) {
      ++result.near_ties;
      // The other choices are tried only if ours does not match, because each costs a call.
      if (!(sums.Diff() <= check.bounds.row_diff_max)) {
        SY_ASSIGN_OR_RETURN(const bool matched, TryOtherChoices(check, row, sums));
        if (matched) ++result.other_choice;
      }
    }
    // A row at a near tie may match with either choice, so its best result counts in the pool.
    pooled.Add(sums);
    // NaN is the worst value and stays the worst.
    if (r == 0 || (!std::isnan(result.worst_row_diff) && !(sums.Diff() <= result.worst_row_diff))) {
      result.worst_row_diff = sums.Diff();
      result.worst_row = r;
    }
  }
  result.pooled_diff = pooled.Diff();
  result.passed = result.pooled_diff <= check.bounds.pooled_diff_max &&
                  result.worst_row_diff <= check.bounds.row_diff_max;
  return absl::OkStatus();
}

}  // namespace

bool MeansUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

absl::StatusOr<BlockResult> CheckBlock(const BlockCheck& check) {
  BlockResult result;
  result.name = check.block.name;
  result.layer = check.block.layer;
  result.rows = check.block.rows;
  const Routing routing = check.router.Route(check.data.in);
  // NaN, so that an element that is never written cannot pass.
  std::vector<float> y(check.data.in.size(), kNan);
  absl::Status status = RunExperts(
      {.layer = check.block.layer, .x = check.data.in, .routing = routing, .y = y}, check.moe);
  if (status.ok()) status = Compare(check, routing, y, result);
  if (MeansUnreachable(status)) return status;
  if (!status.ok()) result.passed = false;
  result.refused = std::move(status);
  return result;
}

}  // namespace switchyard::qwen3_moe
