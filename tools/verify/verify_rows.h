// Checks random rows of one MoE layer of a deployment against the layer in double, which is
// computed here from the same checkpoint. It needs no recorded outputs and no decoder, so it serves
// every model whose experts can be read.
//
// Experts are dealt out in a random order, so that few rows name many of them: ceil(experts /
// top-k) rows name all. The reference rounds nothing; where the kernels round rows to few bits
// (FP8, INT8, NVFP4), the bounds are those of that rounding. Another expert's weights, a missing
// expert or a wrong sum are far outside of all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "model/checkpoint.h"
#include "tools/deployment/moe_provider.h"
#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {

struct RowsCheck {
  const Checkpoint& checkpoint;
  MoeProvider& moe;  // serves this checkpoint; outlives the call
  std::size_t rows = 4;
  std::optional<LayerId> layer;  // unset: one that the deployment serves, by the seed
  std::uint64_t seed = 0;
};

// Costs a read of the experts that the rows name, one at a time, and rows x top-k of their products
// in double. Errors: kInvalidArgument (UNKNOWN_LAYER) for a layer without experts; those of
// LoadExpert; an unavailable MoE function. A refusal is part of the report.
absl::StatusOr<VerifyReport> VerifyRows(const RowsCheck& check);

}  // namespace switchyard::qwen3_moe
