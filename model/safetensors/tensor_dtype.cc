#include "model/safetensors/tensor_dtype.h"

#include <array>

namespace switchyard {
namespace {

struct DtypeRow {
  TensorDtype dtype;
  const char* name;
  std::uint64_t bits;
};

// Row i belongs to the enumerator of value i.
constexpr std::array<DtypeRow, 22> kDtypes{{
    {TensorDtype::kBool, "BOOL", 8},
    {TensorDtype::kF4, "F4", 4},
    {TensorDtype::kF6E2m3, "F6_E2M3", 6},
    {TensorDtype::kF6E3m2, "F6_E3M2", 6},
    {TensorDtype::kU8, "U8", 8},
    {TensorDtype::kI8, "I8", 8},
    {TensorDtype::kF8E5m2, "F8_E5M2", 8},
    {TensorDtype::kF8E4m3, "F8_E4M3", 8},
    {TensorDtype::kF8E8m0, "F8_E8M0", 8},
    {TensorDtype::kF8E4m3Fnuz, "F8_E4M3FNUZ", 8},
    {TensorDtype::kF8E5m2Fnuz, "F8_E5M2FNUZ", 8},
    {TensorDtype::kI16, "I16", 16},
    {TensorDtype::kU16, "U16", 16},
    {TensorDtype::kF16, "F16", 16},
    {TensorDtype::kBf16, "BF16", 16},
    {TensorDtype::kI32, "I32", 32},
    {TensorDtype::kU32, "U32", 32},
    {TensorDtype::kF32, "F32", 32},
    {TensorDtype::kC64, "C64", 64},
    {TensorDtype::kF64, "F64", 64},
    {TensorDtype::kI64, "I64", 64},
    {TensorDtype::kU64, "U64", 64},
}};

const DtypeRow& RowOf(TensorDtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

absl::string_view TensorDtypeName(TensorDtype dtype) { return RowOf(dtype).name; }

std::optional<TensorDtype> TensorDtypeFromName(absl::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::uint64_t TensorDtypeBits(TensorDtype dtype) { return RowOf(dtype).bits; }

std::vector<TensorDtype> AllTensorDtypes() {
  std::vector<TensorDtype> all;
  all.reserve(kDtypes.size());
  for (const DtypeRow& row : kDtypes) all.push_back(row.dtype);
  return all;
}

}  // namespace switchyard
