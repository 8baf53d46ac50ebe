// Checks that the values of a tensor are ones that its layout allows.
//
//   weights     BF16: finite; FP8: no NaN code; one INT4 in a byte: in [-8, 7]; other packed
//               integers: any
//   scales      of blocks, rows and groups, first and second: finite and not negative, zero where
//               all their weights are zero; of groups of plain INT4 (pack-quantized, AWQ) finite
//   one scale   of a whole tensor, of scales or of inputs: finite and above zero
//   offsets     zero: only symmetric weights are served
//   biases      finite
//   shapes      [N, K]
//
// This finds a checkpoint that was cut off, overwritten or written by a broken tool before any row
// is computed with it. Pure; thread-safe. Cost: one pass over the bytes at some GB/s, no allocation
// unless something is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/quant/layout/raw_projection.h"

namespace switchyard {

struct ValueFault {
  std::int64_t index = 0;  // of the first wrong element, in C order
  std::string what;        // "is nan; a scale is finite and not negative"
};

// The first value of `tensor`, one of `projection`'s, that the layout does not allow; nullopt when
// there is none.
std::optional<ValueFault> FindValueFault(const RawTensor& tensor, const RawProjection& projection);

}  // namespace switchyard
