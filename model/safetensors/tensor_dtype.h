// The element types of a safetensors file, and the bits that each takes.
//
// The list is the reference reader's. A dtype outside it has no known size, so a file that uses one
// is refused by the tensor's name. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

// Not wire values: files name a dtype by its text.
enum class TensorDtype : std::uint8_t {
  kBool,
  kF4,
  kF6E2m3,
  kF6E3m2,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kF8E8m0,
  kF8E4m3Fnuz,
  kF8E5m2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// As written in the file: "BF16", "F8_E4M3" ...
absl::string_view TensorDtypeName(TensorDtype dtype);
// nullopt for any other name.
std::optional<TensorDtype> TensorDtypeFromName(absl::string_view name);
// The bits of one element; 4 and 6 occur, so a tensor's bytes are product(shape) * bits / 8.
std::uint64_t TensorDtypeBits(TensorDtype dtype);
// Every dtype, for tables and tests.
std::vector<TensorDtype> AllTensorDtypes();

}  // namespace switchyard
