// Random scales of an expert's weights, between 0.25 and 2.25, so that a wrong one shows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/format/weight_scales.h"
#include "core/moe_shape.h"
#include "core/rng.h"
#include "worker/device/device_backend.h"

namespace switchyard::testing {

// Which scales a projection has.
struct ScaleKinds {
  bool tensor = false;
  bool channels = false;
  bool blocks = false;
  bool groups = false;
};

inline WeightScales RandomScales(std::int64_t outputs, std::int64_t k_count,
                                 const ScaleKinds& kinds, Rng& rng) {
  const auto next = [&rng] { return static_cast<float>(0.25 + 2.0 * rng.Uniform()); };
  WeightScales scales;
  if (kinds.tensor) scales.tensor = next();
  if (kinds.channels) {
    for (std::int64_t n = 0; n < outputs; ++n) scales.channels.push_back(next());
  }
  if (kinds.blocks) {
    const std::int64_t blocks = ScaleBlocks(outputs) * ScaleBlocks(k_count);
    for (std::int64_t i = 0; i < blocks; ++i) scales.blocks.push_back(next());
  }
  if (kinds.groups) {
    const std::int64_t groups = outputs * ScaleBlocks(k_count);
    for (std::int64_t i = 0; i < groups; ++i) scales.groups.push_back(next());
  }
  return scales;
}

struct ExpertScales {
  ExpertScales(const MoeShape& shape, const ScaleKinds& gate_kinds, const ScaleKinds& up_kinds,
               const ScaleKinds& down_kinds, std::uint64_t seed) {
    SeededRng rng(seed);
    gate = RandomScales(shape.intermediate, shape.hidden, gate_kinds, rng);
    up = RandomScales(shape.intermediate, shape.hidden, up_kinds, rng);
    down = RandomScales(shape.hidden, shape.intermediate, down_kinds, rng);
  }
  void AddTo(ExpertWeightsView* view) const {
    view->gate_scales = gate.view();
    view->up_scales = up.view();
    view->down_scales = down.view();
  }

  WeightScales gate;
  WeightScales up;
  WeightScales down;
};

}  // namespace switchyard::testing
