// The MoE layer of a quantized checkpoint in double, from the definition of its numbers: weights by
// the brute-force decoder, rows rounded by a search for the nearest representable value. Slow.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/activation_format.h"
#include "core/dispatch_config.h"
#include "core/format/bf16.h"
#include "tests/reference/activation_reference.h"
#include "tests/reference/moe_reference.h"

namespace switchyard::testing {

// Dequantized, row-major, with what the scheme makes of the rows.
struct SchemeExpert {
  std::vector<double> gate;  // [intermediate, hidden]
  std::vector<double> up;    // [intermediate, hidden]
  std::vector<double> down;  // [hidden, intermediate]
  ActivationSpec inputs;
  ActivationSpec middle;
};

inline std::vector<double> MatVecDouble(const std::vector<double>& w, std::span<const double> x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) sum += w[o * x.size() + k] * x[k];
    y[o] = sum;
  }
  return y;
}

// `rounds`: as the scheme's kernels; else as if activations were not quantized at all. `rounded`:
// the row was quantized on its way, which is not done again.
inline std::vector<double> SchemeExpertRow(const SchemeExpert& expert, std::vector<double> x,
                                           bool rounds, bool rounded) {
  if (rounds && !rounded) ReferenceRound(expert.inputs, x);
  std::vector<double> h = MatVecDouble(expert.gate, x);
  const std::vector<double> up = MatVecDouble(expert.up, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = Silu(h[i]) * up[i];
  if (rounds && expert.middle.format != ActivationFormat::kBf16) {
    ReferenceRound({}, h);  // h is BF16 before it is rounded further
    ReferenceRound(expert.middle, h);
  }
  return MatVecDouble(expert.down, h);
}

// What the rows of a wire format become on their way.
inline ActivationSpec WireRounding(const WireFormat& format, float global_scale) {
  if (format == kFp8Format) return {ActivationFormat::kFp8Group};
  if (format == kFp8Ue8m0Format) return {ActivationFormat::kFp8GroupPow2};
  if (format == kInt8Format) return {ActivationFormat::kInt8Row};
  if (format == kNvfp4Format) return {ActivationFormat::kNvfp4, global_scale};
  return {};
}

struct SchemeMoe {
  std::vector<SchemeExpert> experts;
  ActivationSpec wire;
};

// y [tokens, hidden]. `rounds`: wire and experts quantize; else nothing does.
inline std::vector<double> SchemeMoeLayer(const SchemeMoe& moe, const MoeShape& shape,
                                          const ReferenceMoeInput& input, bool rounds) {
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  std::vector<double> y(input.x.size(), 0.0);
  for (std::size_t t = 0; t < input.x.size() / hidden; ++t) {
    std::vector<double> x;
    for (const Bf16 bits : input.x.subspan(t * hidden, hidden)) {
      x.push_back(static_cast<double>(Bf16ToFloat(bits)));
    }
    if (rounds) ReferenceRound(moe.wire, x);
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::int32_t id = input.ids[t * top_k + k];
      if (id < 0) continue;
      const std::vector<double> row =
          SchemeExpertRow(moe.experts[static_cast<std::size_t>(id)], x, rounds,
                          moe.wire.format != ActivationFormat::kBf16);
      const auto weight = static_cast<double>(input.weights[t * top_k + k]);
      for (std::size_t i = 0; i < hidden; ++i) y[t * hidden + i] += weight * row[i];
    }
  }
  return y;
}

}  // namespace switchyard::testing
