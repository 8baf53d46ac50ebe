#include "quantize/calibration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::size_t kNamedMax = 8;  // experts that a warning lists by number

absl::Status Refuse(std::int32_t layer, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("calibration of layer ", layer, ": ", what),
                   {{"layer", absl::StrCat(layer)}});
}

std::string ListOf(const std::vector<std::int32_t>& experts) {
  if (experts.size() <= kNamedMax) return absl::StrJoin(experts, ", ");
  const std::vector<std::int32_t> first(experts.begin(), experts.begin() + kNamedMax);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", experts.size() - kNamedMax, " more");
}

}  // namespace

// An expert that calibration never reached would get the scale 0, which turns all its later rows
// into zeros; the layer's maximum is coarse but safe. A layer without any rows has no such
// substitute.
absl::StatusOr<LayerInputAmax> InputAmaxOf(const AmaxTable& table, std::int32_t layer,
                                           std::int32_t experts) {
  const LayerAmax* row = table.Find(layer);
  if (row == nullptr) {
    return Refuse(layer,
                  "the file has no such layer; record all MoE layers, or keep this one in "
                  "BF16 by --keep-bf16-layers");
  }
  // The most likely mistake is a file recorded with another model.
  if (row->experts.size() != static_cast<std::size_t>(experts)) {
    return Refuse(layer, absl::StrCat("the file has ", row->experts.size(), " experts, the model ",
                                      experts, "; is it of another model?"));
  }
  LayerInputAmax amax;
  float down_max = 0;
  std::vector<std::int32_t> idle;
  for (std::int32_t expert = 0; expert < experts; ++expert) {
    const ExpertAmax& seen = row->experts[static_cast<std::size_t>(expert)];
    amax.gate_up = std::max(amax.gate_up, seen.gate_up);
    down_max = std::max(down_max, seen.down);
    amax.down.push_back(seen.down);
    if (seen.gate_up == 0 || seen.down == 0) idle.push_back(expert);
  }
  if (amax.gate_up == 0 || down_max == 0) {
    return Refuse(layer, "no expert received a row; calibrate with more text");
  }
  std::replace(amax.down.begin(), amax.down.end(), 0.0F, down_max);
  if (idle.empty()) return amax;
  amax.warnings.push_back(absl::StrCat("layer ", layer, ": calibration gave no row to ",
                                       idle.size() == 1 ? "expert " : "experts ", ListOf(idle),
                                       "; the layer's largest magnitudes (", amax.gate_up,
                                       ", down ", down_max, ") are used for the missing ones."));
  return amax;
}

}  // namespace switchyard
