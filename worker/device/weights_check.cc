#include "worker/device/weights_check.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// A projection's matrix is [outputs, k].
struct ProjectionView {
  const char* name;
  std::int64_t outputs;
  std::int64_t k;
  std::size_t values;
  const WeightScalesView& scales;
  std::size_t biases;
};

absl::Status CheckSizes(const MoeShape& shape, const ProjectionView& view) {
  const std::tuple<const char*, std::size_t, std::int64_t, bool> parts[] = {
      {"weights", view.values, view.outputs * view.k, true},
      {"biases", view.biases, view.outputs, false},
      {"scales of outputs", view.scales.channels.size(), view.outputs, false},
      {"scales of blocks", view.scales.blocks.size(),
       ScaleBlocks(view.outputs) * ScaleBlocks(view.k), false},
      {"scales of groups", view.scales.groups.size(), view.outputs * ScaleBlocks(view.k), false}};
  // Everything but the weights may be missing.
  for (const auto& [part, size, want, required] : parts) {
    if (size == static_cast<std::size_t>(want) || (size == 0 && !required)) continue;
    return BadShape(shape, absl::StrCat(view.name, " has ", size, " ", part, ", not ", want,
                                        "; check the checkpoint's shapes"));
  }
  return absl::OkStatus();
}

absl::Status BadScale(const std::string& what, float scale, absl::string_view wanted) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrCat(what, " is ", scale, "; such scales are ", wanted, ": check the checkpoint"),
      {{"scale", absl::StrCat(scale)}});
}

// NaN, infinities and what is below zero make no scale. Zero makes none of rows or of a tensor.
absl::Status CheckScale(const std::string& what, float scale) {
  if (std::isfinite(scale) && scale > 0) return absl::OkStatus();
  return BadScale(what, scale, "finite and above zero");
}

struct ScalesOf {
  const char* what;
  std::span<const float> scales;
  bool may_be_negative;
};

absl::Status CheckScales(const ProjectionView& view) {
  SY_RETURN_IF_ERROR(CheckScale(absl::StrCat(view.name, "'s scale"), view.scales.tensor));
  // Groups of INT4 may have a negative scale, which turns the code -8 into their largest weight.
  const ScalesOf kinds[] = {{"output", view.scales.channels, false},
                            {"block", view.scales.blocks, false},
                            {"group", view.scales.groups, true}};
  for (const ScalesOf& kind : kinds) {
    const auto wrong = std::find_if(kind.scales.begin(), kind.scales.end(), [&](float scale) {
      return !std::isfinite(scale) || (scale < 0 && !kind.may_be_negative);
    });
    if (wrong == kind.scales.end()) continue;
    return BadScale(
        absl::StrCat(view.name, "'s scale of ", kind.what, " ", wrong - kind.scales.begin()),
        *wrong, kind.may_be_negative ? "finite" : "finite and not below zero");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BadShape(const MoeShape& shape, absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadShape,
      absl::StrCat("experts of hidden ", shape.hidden, ", intermediate ", shape.intermediate, ": ",
                   what),
      {{"hidden", absl::StrCat(shape.hidden)}, {"intermediate", absl::StrCat(shape.intermediate)}});
}

absl::Status CheckWeights(const MoeShape& shape, const ExpertWeightsView& weights) {
  const ProjectionView views[] = {{"gate", shape.intermediate, shape.hidden, weights.gate.size(),
                                   weights.gate_scales, weights.gate_bias.size()},
                                  {"up", shape.intermediate, shape.hidden, weights.up.size(),
                                   weights.up_scales, weights.up_bias.size()},
                                  {"down", shape.hidden, shape.intermediate, weights.down.size(),
                                   weights.down_scales, weights.down_bias.size()}};
  for (const ProjectionView& view : views) {
    // Sizes first: the next check walks the scales.
    SY_RETURN_IF_ERROR(CheckSizes(shape, view));
    SY_RETURN_IF_ERROR(CheckScales(view));
  }
  SY_RETURN_IF_ERROR(CheckScale("the scale of the rows", weights.inputs.scale));
  return CheckScale("the scale of down's rows", weights.middle.scale);
}

}  // namespace switchyard
