#include "tools/verify/verify_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/format/calc_diff.h"
#include "core/rng.h"
#include "examples/qwen3_moe/experts_call.h"
#include "model/expert_weights.h"
#include "tools/deployment/hashed_moe.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

// The largest values of E4M3 and of E2M1.
constexpr double kE4m3Max = 448;
constexpr double kE2m1Max = 6;

// Returns infinity for formats whose scales are measured: to them no value is too large.
double LargestOf(const ActivationSpec& spec) {
  const auto scale = static_cast<double>(spec.scale);
  switch (spec.format) {
    case ActivationFormat::kFp8Static:
      return kE4m3Max * scale;
    case ActivationFormat::kNvfp4:
      return kE4m3Max * kE2m1Max / scale;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

// Half the squared relative error of a row's values, generously: of E4M3 2^-4 / sqrt(3), of INT8
// and INT4 that of a uniform row, of E2M1 with its coarse scales 2^-2 / sqrt(3).
double RoundingOf(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kBf16:
      return 0;
    case ActivationFormat::kInt8Row:
      return 1e-3;
    case ActivationFormat::kFp8Group:
    case ActivationFormat::kFp8GroupPow2:
    case ActivationFormat::kFp8Row:
    case ActivationFormat::kFp8Static:
      return 5e-3;
    case ActivationFormat::kNvfp4:
    case ActivationFormat::kInt4Row:
      return 4e-2;
  }
  return 4e-2;
}

double RoundingOf(DispatchDtype wire) {
  switch (wire) {
    case DispatchDtype::kBf16:
      return 0;
    case DispatchDtype::kInt8:
      return 1e-3;
    case DispatchDtype::kFp8:
      return 5e-3;
    case DispatchDtype::kNvfp4:
      return 4e-2;
  }
  return 4e-2;
}

// y [outputs] = w x + bias, in double, from the stored values and their scales.
std::vector<double> Multiply(const ExpertWeights& weights, Projection projection,
                             const std::vector<double>& x) {
  const std::vector<Bf16>& values = weights.of(projection);
  const auto at = static_cast<std::size_t>(projection);
  const WeightScalesView scales = weights.scales[at].view();
  const bool plain = scales.channels.empty() && scales.blocks.empty() && scales.groups.empty();
  const auto k_count = static_cast<std::int64_t>(x.size());
  std::vector<double> y(values.size() / x.size());
  for (std::size_t n = 0; n < y.size(); ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const float scale =
          plain ? scales.tensor
                : scales.At(static_cast<std::int64_t>(n), static_cast<std::int64_t>(k), k_count);
      sum += static_cast<double>(Bf16ToFloat(values[n * x.size() + k])) *
             static_cast<double>(scale) * x[k];
    }
    y[n] = sum;
    if (!weights.biases[at].empty()) y[n] += static_cast<double>(weights.biases[at][n]);
  }
  return y;
}

void Clamp(double largest, std::vector<double>& values) {
  for (double& value : values) value = std::clamp(value, -largest, largest);
}

// down(silu(gate(x)) * up(x)).
std::vector<double> RunExpert(const ExpertWeights& weights, std::vector<double> x) {
  Clamp(LargestOf(weights.inputs), x);
  std::vector<double> h = Multiply(weights, Projection::kGate, x);
  const std::vector<double> up = Multiply(weights, Projection::kUp, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
  Clamp(LargestOf(weights.middle), h);
  return Multiply(weights, Projection::kDown, h);
}

// The rows to send, and their right answers.
struct Rows {
  std::vector<float> x;  // of BF16's values
  Routing routing;
  std::vector<double> y;
  double rounding = 0;  // of the experts' own formats
};

// The largest value of a row: static scales are made for a model's own rows, which these are not.
absl::StatusOr<double> AmplitudeOf(const RowsCheck& check, LayerId layer) {
  SY_ASSIGN_OR_RETURN(const ExpertWeights any, LoadExpert(check.checkpoint, layer, ExpertId{0}));
  return std::min(1.0, LargestOf(any.inputs) / 2);
}

// `row_count` rows with experts in a random order, weights that add up to 1, and no answers yet.
Rows MakeRows(std::size_t row_count, const MoeShape& shape, double amplitude, Rng& rng) {
  Rows rows;
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  for (std::size_t i = 0; i < row_count * hidden; ++i) {
    const auto value = static_cast<float>((2 * rng.Uniform() - 1) * amplitude);
    rows.x.push_back(Bf16ToFloat(FloatToBf16(value)));
  }
  rows.routing.top_k = top_k;
  std::vector<std::int32_t> order;
  for (std::size_t t = 0; t < row_count; ++t) {
    if (order.size() < top_k) {
      order.resize(static_cast<std::size_t>(shape.experts));
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
    }
    double sum = 0;
    std::vector<double> weights;
    for (std::size_t k = 0; k < top_k; ++k) sum += weights.emplace_back(0.5 + rng.Uniform());
    for (const double weight : weights) {
      rows.routing.weights.push_back(static_cast<float>(weight / sum));
      rows.routing.ids.push_back(order.back());
      order.pop_back();
    }
  }
  rows.y.assign(rows.x.size(), 0);
  return rows;
}

// Expert by expert, because one may take hundreds of megabytes.
absl::Status AddAnswers(const RowsCheck& check, LayerId layer, Rows& rows) {
  const std::size_t hidden = rows.x.size() / check.rows;
  const std::set<std::int32_t> used(rows.routing.ids.begin(), rows.routing.ids.end());
  for (const std::int32_t id : used) {
    SY_ASSIGN_OR_RETURN(const ExpertWeights weights,
                        LoadExpert(check.checkpoint, layer, ExpertId{id}));
    rows.rounding = std::max(
        {rows.rounding, RoundingOf(weights.inputs.format), RoundingOf(weights.middle.format)});
    for (std::size_t i = 0; i < rows.routing.ids.size(); ++i) {
      if (rows.routing.ids[i] != id) continue;
      const std::size_t begin = i / rows.routing.top_k * hidden;
      const std::vector<double> answer = RunExpert(
          weights,
          std::vector<double>(rows.x.begin() + static_cast<std::ptrdiff_t>(begin),
                              rows.x.begin() + static_cast<std::ptrdiff_t>(begin + hidden)));
      const auto weight = static_cast<double>(rows.routing.weights[i]);
      for (std::size_t h = 0; h < hidden; ++h) rows.y[begin + h] += weight * answer[h];
    }
  }
  return absl::OkStatus();
}

// Draws among the layers that the deployment serves, or among all where nobody says which they are.
absl::StatusOr<LayerId> LayerOf(const RowsCheck& check, const ExpertsReport& served, Rng& rng) {
  std::set<LayerId> layers;
  for (const DispatchConfig& config : served.prefill) layers.insert(config.layer);
  const std::vector<LayerId> all = MoeLayersOf(check.checkpoint.config());
  if (layers.empty()) layers.insert(all.begin(), all.end());
  const LayerId drawn =
      *std::next(layers.begin(), static_cast<std::ptrdiff_t>(rng.Below(layers.size())));
  const LayerId layer = check.layer.value_or(drawn);
  SY_RETURN_IF_ERROR(check.checkpoint.ExpertsOf(layer).status());
  return layer;
}

double WireRoundingOf(const ExpertsReport& served, LayerId layer) {
  double rounding = 0;
  for (const DispatchConfig& config : served.prefill) {
    if (config.layer != layer) continue;
    rounding = std::max(rounding, RoundingOf(config.wire_dtype));
  }
  return rounding;
}

BlockResult Compare(const Rows& rows, std::size_t count, std::span<const float> y) {
  BlockResult result;
  result.rows = count;
  const std::size_t hidden = y.size() / count;
  std::vector<float> wanted(rows.y.begin(), rows.y.end());
  DiffSums pooled;
  for (std::size_t r = 0; r < count; ++r) {
    DiffSums sums;
    sums.Add(y.subspan(r * hidden, hidden), std::span(wanted).subspan(r * hidden, hidden));
    pooled.Add(sums);
    if (r == 0 || (!std::isnan(result.worst_row_diff) && !(sums.Diff() <= result.worst_row_diff))) {
      result.worst_row_diff = sums.Diff();
      result.worst_row = r;
    }
  }
  result.pooled_diff = pooled.Diff();
  return result;
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyRows(const RowsCheck& check) {
  VerifyReport report;
  report.routed_here = false;
  SeededRng rng(check.seed);
  HashedMoe moe(check.moe);
  SY_ASSIGN_OR_RETURN(const ExpertsReport served, moe.Report());
  SY_ASSIGN_OR_RETURN(const LayerId layer, LayerOf(check, served, rng));
  SY_ASSIGN_OR_RETURN(const double amplitude, AmplitudeOf(check, layer));
  Rows rows = MakeRows(check.rows, ShapeOf(check.checkpoint.config()), amplitude, rng);
  SY_RETURN_IF_ERROR(AddAnswers(check, layer, rows));
  const double rounding = std::max(rows.rounding, WireRoundingOf(served, layer));
  report.bounds.pooled_diff_max = std::max(report.bounds.pooled_diff_max, rounding);
  report.bounds.row_diff_max = std::max(report.bounds.row_diff_max, rounding);

  std::vector<float> y(rows.x.size(), std::numeric_limits<float>::quiet_NaN());
  const absl::Status ran =
      RunExperts({.layer = layer, .x = rows.x, .routing = rows.routing, .y = y}, moe.prefill());
  if (MeansUnreachable(ran)) return ran;
  BlockResult block = ran.ok() ? Compare(rows, check.rows, y) : BlockResult();
  block.name = "random rows";
  block.layer = layer;
  block.rows = check.rows;
  block.refused = ran;
  block.passed = ran.ok() && block.pooled_diff <= report.bounds.pooled_diff_max &&
                 block.worst_row_diff <= report.bounds.row_diff_max;
  AddBlock(std::move(block), report);
  const std::set<std::int32_t> used(rows.routing.ids.begin(), rows.routing.ids.end());
  report.notes.push_back(absl::StrCat(
      "the rows name ", used.size(), " of ", check.checkpoint.config().experts,
      " experts of one layer; again with --layer ", layer.value, " --seed ", check.seed));
  SY_RETURN_IF_ERROR(Finish(moe, report));
  return report;
}

}  // namespace switchyard::qwen3_moe
