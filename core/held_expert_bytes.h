// What one expert takes in the memory of a worker, for plans and their limits.
#pragma once

#include <cstdint>

#include "core/format/weight_scales.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"

namespace switchyard {

// Whether layouts of `scheme` may have a scale for each output and group of K.
inline bool MayHaveGroupScales(QuantScheme scheme) {
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

// In bytes: BF16 values, whatever the checkpoint stores, and FP32 scales of groups of 128 of K
// where there may be any, 1/64 more: also for a checkpoint of the scheme whose groups are smaller,
// which holds none. Scales of blocks and outputs, biases and the padding of small matrices are not
// in it. Pure; thread-safe.
inline std::int64_t HeldExpertBytes(const MoeShape& shape, QuantScheme scheme) {
  const std::int64_t values = std::int64_t{3} * shape.hidden * shape.intermediate;
  const std::int64_t groups = 2 * shape.intermediate * ScaleBlocks(shape.hidden) +
                              shape.hidden * ScaleBlocks(shape.intermediate);
  return 2 * values + (MayHaveGroupScales(scheme) ? 4 * groups : 0);
}

}  // namespace switchyard
