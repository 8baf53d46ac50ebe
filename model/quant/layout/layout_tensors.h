// The vocabulary of a row of the layout table: the tensors that a projection has.
//
// N x K is [out, in] of the projection and g the values of K that share a scale. Every list here is
// closed: a layout that needs another role, length or condition adds it with its one line in
// expected_tensors.cc. A closed list keeps readers, checks and decoders free of names of layouts.
// Constant data; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// The purpose of a tensor, whatever its layout calls it.
enum class TensorRole : std::uint8_t {
  kWeight,
  kBias,         // of the projection; unquantized
  kScale,        // of blocks, rows, groups or the tensor
  kScaleSecond,  // of the groups of a row that has a scale of its own
  kGlobalScale,  // over the scales of groups
  kInputScale,   // static, of the projection's inputs
  kOffset,       // zeros
  kOffsetSecond,
  kZeroPoints,
  kScaleBias,    // a correction that NPU kernels add for INT4 weights; no part of the weights
  kWeightShape,  // [N, K]
};

// One dimension of a tensor, as a function of the projection's size, its group size and, for
// kBiasParts, which projection it is. Divisions are exact: expected_tensors.cc first checks the
// sizes against SizeMultiples and the group size.
enum class Length : std::uint8_t {
  kNone,  // the tensor has no such dimension
  kOne,
  kTwo,
  kRows,          // N
  kHalfRows,      // N / 2
  kRowWords,      // N / 8: eight INT4 in an I32
  kColumns,       // K
  kHalfColumns,   // K / 2
  kColumnWords,   // K / 8
  kGroups,        // K / g
  kRowBlocks,     // ceil(N / 128)
  kColumnBlocks,  // ceil(K / 128)
  kBiasParts,     // 16 of down, else 1: msModelSlim sums down in parts, for as many ranks
};

// The condition under which a projection of the layout has the tensor, by its ProjectionQuant.
enum class Presence : std::uint8_t {
  kAlways,
  kWithGroups,            // group_size > 0
  kWithStaticInputs,      // static_inputs
  kWithFp32Scales,        // not power_of_two_scales
  kWithPowerOfTwoScales,  // power_of_two_scales
};

// One tensor of a layout. A layout lists each role at most once for any ProjectionQuant, so a
// tensor is found by its role.
struct LayoutTensor {
  TensorRole role = TensorRole::kWeight;
  const char* suffix = "";                // the name below "<module>."
  std::span<const TensorDtype> dtypes{};  // any of them
  // Both kNone: one element, stored as [] or [1].
  std::array<Length, 2> shape{Length::kNone, Length::kNone};
  Presence presence = Presence::kAlways;
  bool required = true;
};

// [rows, columns] of the projection: N x K.
struct ProjectionSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

}  // namespace switchyard
