#include "model/quant/layout/expected_tensors.h"

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "core/format/weight_scales.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

constexpr std::int64_t kPerWord = 8;     // INT4 in an I32
constexpr std::int64_t kBiasParts = 16;  // msModelSlim sums down in 16 parts, for 16 ranks

// The key in the error is the one that an operator can change: the group size where it does not
// divide, else the model's size.
absl::Status Divides(const char* what, std::int64_t value, std::int64_t divisor,
                     const ProjectionQuant& quant) {
  if (divisor > 0 && value % divisor == 0) return absl::OkStatus();
  return BadConfig(
      divisor == quant.group_size ? "group_size" : "hidden_size",
      absl::StrCat("experts of layout ", QuantLayoutInfoOf(quant.layout).name, " need ", what,
                   " that are multiples of ", divisor, ", found ", value));
}

bool HasGroups(ScaleUnit unit) {
  return unit == ScaleUnit::kGroup || unit == ScaleUnit::kGroupMajor ||
         unit == ScaleUnit::kRowAndGroup;
}

// Comes before any division by these numbers: sizes come from files.
absl::Status CheckSize(const ProjectionQuant& quant, const ProjectionSize& size) {
  const QuantLayoutInfo& row = QuantLayoutInfoOf(quant.layout);
  SY_RETURN_IF_ERROR(Divides("rows", size.rows, row.multiples.rows, quant));
  SY_RETURN_IF_ERROR(Divides("columns", size.columns, row.multiples.columns, quant));
  if (!HasGroups(row.scale_unit)) return absl::OkStatus();
  return Divides("columns", size.columns, GroupSizeOf(quant, size.columns), quant);
}

bool IsPresent(Presence presence, const ProjectionQuant& quant) {
  switch (presence) {
    case Presence::kAlways:
      break;
    case Presence::kWithGroups:
      return quant.group_size > 0;
    case Presence::kWithStaticInputs:
      return quant.static_inputs;
    case Presence::kWithFp32Scales:
      return !quant.power_of_two_scales;
    case Presence::kWithPowerOfTwoScales:
      return quant.power_of_two_scales;
  }
  return true;
}

// Resolves `lengths` for one projection.
std::vector<std::int64_t> ShapeOf(std::span<const Length> lengths, const ProjectionQuant& quant,
                                  Projection projection, const ProjectionSize& size) {
  const auto length = [&](Length one) -> std::int64_t {
    switch (one) {
      case Length::kNone:
      case Length::kOne:
        break;
      case Length::kTwo:
        return 2;
      case Length::kRows:
        return size.rows;
      case Length::kHalfRows:
        return size.rows / 2;
      case Length::kRowWords:
        return size.rows / kPerWord;
      case Length::kColumns:
        return size.columns;
      case Length::kHalfColumns:
        return size.columns / 2;
      case Length::kColumnWords:
        return size.columns / kPerWord;
      case Length::kGroups:
        return size.columns / GroupSizeOf(quant, size.columns);
      case Length::kRowBlocks:
        return ScaleBlocks(size.rows);
      case Length::kColumnBlocks:
        return ScaleBlocks(size.columns);
      case Length::kBiasParts:
        return projection == Projection::kDown ? kBiasParts : 1;
    }
    return 1;
  };
  std::vector<std::int64_t> shape;
  for (const Length one : lengths) {
    if (one != Length::kNone) shape.push_back(length(one));
  }
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<ExpectedTensor>> ExpectedTensors(const ProjectionQuant& quant,
                                                            Projection projection,
                                                            const ProjectionSize& size) {
  SY_RETURN_IF_ERROR(CheckSize(quant, size));
  std::vector<ExpectedTensor> tensors;
  for (const LayoutTensor& tensor : QuantLayoutInfoOf(quant.layout).tensors) {
    if (!IsPresent(tensor.presence, quant)) continue;
    tensors.push_back({tensor.role,
                       tensor.suffix,
                       {tensor.dtypes.begin(), tensor.dtypes.end()},
                       ShapeOf(tensor.shape, quant, projection, size),
                       tensor.required});
  }
  return tensors;
}

}  // namespace switchyard
