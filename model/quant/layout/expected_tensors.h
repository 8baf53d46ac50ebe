// The tensors that a projection of a given size has in its layout: names, dtypes, shapes.
//
// The lists are data of quant_layout.h; this works their shapes out. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "core/projection.h"
#include "model/quant/layout/layout_tensors.h"
#include "model/quant/layout/quant_layout.h"
#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// A LayoutTensor whose shape is known.
struct ExpectedTensor {
  TensorRole role = TensorRole::kWeight;
  const char* suffix = "";
  std::vector<TensorDtype> dtypes;  // any of them
  std::vector<std::int64_t> shape;  // {}: one element, as [] or [1]
  bool required = true;
};

// Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: sizes that the layout cannot hold, such as
// K that is no multiple of the group size. Rows and columns need not be multiples of 128 for
// blocks: the last block is then smaller.
absl::StatusOr<std::vector<ExpectedTensor>> ExpectedTensors(const ProjectionQuant& quant,
                                                            Projection projection,
                                                            const ProjectionSize& size);

}  // namespace switchyard
