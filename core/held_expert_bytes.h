// The memory that one expert takes in a worker, for plans and their limits.
#pragma once

#include <cstdint>

#include "core/format/weight_scales.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"

namespace switchyard {

// Whether layouts of `scheme` may have a scale for each output and group of K.
inline bool MayHaveGroupScales(QuantScheme scheme) {
  // A switch and not a table: a scheme without groups needs no entry.
  switch (scheme) {
    case QuantScheme::kW4Afp8:
    case QuantScheme::kW4A8Int8:
    case QuantScheme::kW4A16Int4:
    case QuantScheme::kAwqInt4:
      return true;
    default:
      return false;
  }
}

// In bytes: BF16 values, whatever the checkpoint stores, and where the scheme may have scales of
// groups, one FP32 scale for each 128 of K (1/64 more). A checkpoint whose groups are smaller holds
// no such scales and is overestimated. Scales of blocks and outputs, biases and the padding of
// small matrices are not counted. Pure; thread-safe.
inline std::int64_t HeldExpertBytes(const MoeShape& shape, QuantScheme scheme) {
  const std::int64_t values = std::int64_t{3} * shape.hidden * shape.intermediate;
  const std::int64_t groups = std::int64_t{2} * shape.intermediate * ScaleBlocks(shape.hidden) +
                              shape.hidden * ScaleBlocks(shape.intermediate);
  return 2 * values + (MayHaveGroupScales(scheme) ? 4 * groups : 0);
}

}  // namespace switchyard
