// A device's view of an expert that a weight source loaded.
#pragma once

#include "model/expert_weights.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Borrows: `weights` must outlive the view. Costs nothing; nothing is copied. A header of its own,
// so that the seam does not depend on where weights come from.
inline ExpertWeightsView ViewOf(const ExpertWeights& weights) {
  return {.gate = weights.gate,
          .up = weights.up,
          .down = weights.down,
          .gate_scales = weights.scales[0].view(),
          .up_scales = weights.scales[1].view(),
          .down_scales = weights.scales[2].view(),
          .gate_bias = weights.biases[0],
          .up_bias = weights.biases[1],
          .down_bias = weights.biases[2],
          .inputs = weights.inputs,
          .middle = weights.middle};
}

}  // namespace switchyard
