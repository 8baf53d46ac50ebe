// The largest magnitudes of the inputs, from which the static scales of a layer are computed.
//
// Rows are encoded once, for all the experts that they go to, so `gate_up` of every expert is the
// layer's maximum. The input of `down` is an expert's own. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/projection.h"
#include "model/quant/config/amax_file.h"

namespace switchyard {

struct LayerInputAmax {
  float gate_up = 0;
  std::vector<float> down;            // by expert; none is 0
  std::vector<std::string> warnings;  // whole sentences

  [[nodiscard]] float of(std::int32_t expert, Projection projection) const {
    return projection == Projection::kDown ? down[static_cast<std::size_t>(expert)] : gate_up;
  }
};

// An expert whose `down` is 0 (it received no row) takes the layer's largest, with a warning.
// Errors: kInvalidArgument (BAD_CONFIG), metadata {layer}: the layer has no row, another number of
// experts, or magnitudes that are all 0.
absl::StatusOr<LayerInputAmax> InputAmaxOf(const AmaxTable& table, std::int32_t layer,
                                           std::int32_t experts);

}  // namespace switchyard
