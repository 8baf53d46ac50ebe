#include "examples/qwen3_moe/reference_moe.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "model/expert_weights.h"

namespace switchyard::qwen3_moe {
namespace {

float Silu(float value) { return value / (1.0F + std::exp(-value)); }

// Weights of a quantized checkpoint are dequantized; rows stay as they are here.
PackedMatrix PackWeights(const ExpertWeights& weights, Projection projection, std::size_t columns,
                         std::size_t inner) {
  const std::vector<Bf16>& stored = weights.of(projection);
  std::vector<float> values(stored.size());
  Bf16ToFloats(stored, values);
  const WeightScalesView scales = weights.scales[static_cast<std::size_t>(projection)].view();
  const auto k_count = static_cast<std::int64_t>(inner);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    values[i] *= scales.At(at / k_count, at % k_count, k_count);
  }
  return PackedMatrix::Pack(values, columns, inner);
}

// Of every row of `rows`, which are as long as `bias`.
void AddBias(const std::vector<float>& bias, std::vector<float>& rows) {
  if (bias.empty()) return;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += bias[i % bias.size()];
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReferenceMoe>> ReferenceMoe::Load(const Checkpoint& checkpoint,
                                                                 const DecoderDims& dims) {
  auto moe = std::unique_ptr<ReferenceMoe>(new ReferenceMoe(dims));
  const std::size_t inner = dims.moe_intermediate;
  for (std::size_t layer = 0; layer < dims.layers; ++layer) {
    std::vector<Expert>& experts = moe->layers_.emplace_back();
    for (std::size_t e = 0; e < dims.experts; ++e) {
      SY_ASSIGN_OR_RETURN(const ExpertWeights weights,
                          LoadExpert(checkpoint, LayerId{static_cast<std::int32_t>(layer)},
                                     ExpertId{static_cast<std::int32_t>(e)}));
      experts.push_back({.gate = PackWeights(weights, Projection::kGate, inner, dims.hidden),
                         .up = PackWeights(weights, Projection::kUp, inner, dims.hidden),
                         .down = PackWeights(weights, Projection::kDown, dims.hidden, inner),
                         .biases = weights.biases});
    }
  }
  return moe;
}

absl::Status ReferenceMoe::Check(const MoeCall& call) const {
  const auto refuse = [&call](Reason reason, absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason,
                     absl::StrCat("layer ", call.layer.value, ": ", what),
                     {{"layer", absl::StrCat(call.layer.value)}});
  };
  if (call.layer.value < 0 || static_cast<std::size_t>(call.layer.value) >= layers_.size()) {
    return refuse(Reason::kUnknownLayer, absl::StrCat("the model has ", layers_.size(), " layers"));
  }
  if (call.top_k == 0 || call.top_k > dims_.experts) {
    return refuse(Reason::kBadTopK, absl::StrCat("top-k ", call.top_k, " of ", dims_.experts));
  }
  const std::size_t values = call.tokens * dims_.hidden;
  const std::size_t picks = call.tokens * call.top_k;
  if (call.x.size() != values || call.y.size() != values || call.ids.size() != picks ||
      call.weights.size() != picks) {
    return refuse(Reason::kBadShape, "x, ids, weights and y do not fit the number of tokens");
  }
  for (std::size_t i = 0; i < picks; ++i) {
    if (call.ids[i] < -1 || call.ids[i] >= static_cast<std::int32_t>(dims_.experts)) {
      return refuse(Reason::kExpertOutOfRange,
                    absl::StrCat("row ", i / call.top_k, " names expert ", call.ids[i],
                                 "; there are ", dims_.experts));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceMoe::Run(const MoeCall& call) const {
  SY_RETURN_IF_ERROR(Check(call));
  const std::size_t hidden = dims_.hidden;
  const std::size_t inner = dims_.moe_intermediate;
  const std::vector<Expert>& experts = layers_[static_cast<std::size_t>(call.layer.value)];
  std::vector<float> x(call.x.size());
  Bf16ToFloats(call.x, x);
  // One output row for each (token, k); summed at the end, so that the order is the token's own.
  std::vector<float> outputs(call.ids.size() * hidden);
  std::vector<std::size_t> picks;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    picks.clear();
    for (std::size_t i = 0; i < call.ids.size(); ++i) {
      if (call.ids[i] == static_cast<std::int32_t>(e)) picks.push_back(i);
    }
    const std::size_t rows = picks.size();
    if (rows == 0) continue;
    std::vector<float> gathered(rows * hidden);
    std::vector<float> gate(rows * inner);
    std::vector<float> up(rows * inner);
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(&x[picks[r] / call.top_k * hidden], hidden, &gathered[r * hidden]);
    }
    experts[e].gate.Apply(gathered.data(), rows, gate.data());
    experts[e].up.Apply(gathered.data(), rows, up.data());
    AddBias(experts[e].biases[0], gate);
    AddBias(experts[e].biases[1], up);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = Silu(gate[i]) * up[i];
    experts[e].down.Apply(gate.data(), rows, gathered.data());
    AddBias(experts[e].biases[2], gathered);
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(&gathered[r * hidden], hidden, &outputs[picks[r] * hidden]);
    }
  }
  std::fill(call.y.begin(), call.y.end(), 0.0F);
  for (std::size_t i = 0; i < call.ids.size(); ++i) {
    if (call.ids[i] < 0) continue;
    float* y = &call.y[i / call.top_k * hidden];
    for (std::size_t h = 0; h < hidden; ++h) y[h] += call.weights[i] * outputs[i * hidden + h];
  }
  return absl::OkStatus();
}

MoeFn MakeReferenceMoe(std::shared_ptr<const ReferenceMoe> moe) {
  return [moe = std::move(moe)](const MoeCall& call) { return moe->Run(call); };
}

}  // namespace switchyard::qwen3_moe
