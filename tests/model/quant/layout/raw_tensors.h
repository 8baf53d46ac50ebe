// Tensors of given values, for tests of what reads them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/quant/layout/raw_projection.h"

namespace switchyard::testing {

template <typename T>
RawTensor TensorOf(TensorRole role, TensorDtype dtype, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {role, dtype, {static_cast<std::int64_t>(values.size())}, {bytes.begin(), bytes.end()}};
}

}  // namespace switchyard::testing
