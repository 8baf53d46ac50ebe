#include "model/safetensors/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "model/io/checkpoint_error.h"
#include "model/safetensors/safetensors_header_sax.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

// The bytes before the JSON.
constexpr std::uint64_t kLengthBytes = 8;

CheckpointErrorPlace PlaceOf(const SafetensorsHeaderInput& input, absl::string_view tensor = "") {
  return {.file = std::string(input.file), .tensor = std::string(tensor), .offset = std::nullopt};
}

absl::Status CheckText(const SafetensorsHeaderInput& input) {
  CheckpointErrorPlace place = PlaceOf(input);
  const std::size_t invalid = FindInvalidUtf8(input.json);
  if (invalid != input.json.size()) {
    place.offset = kLengthBytes + invalid;
    return MakeCheckpointError(Kind::kInvalidHeader, place, "the header is not UTF-8");
  }
  const std::size_t start = input.json.find_first_not_of(" \t\r\n");
  if (start == absl::string_view::npos || input.json[start] != '{') {
    place.offset = kLengthBytes + std::min(start, input.json.size());
    return MakeCheckpointError(Kind::kInvalidHeaderStart, place,
                               "the header does not begin with '{'; is this a safetensors file?");
  }
  // The JSON library takes a NUL for the end of the text and would ignore everything behind it.
  const std::size_t nul = input.json.find('\0');
  if (nul != absl::string_view::npos) {
    place.offset = kLengthBytes + nul;
    return MakeCheckpointError(Kind::kInvalidHeaderDeserialization, place,
                               "the header holds a NUL byte");
  }
  return absl::OkStatus();
}

// The bytes that shape and dtype imply.
absl::StatusOr<std::uint64_t> ImpliedBytes(const SafetensorsHeaderInput& input,
                                           const TensorInfo& tensor) {
  std::uint64_t bits = 1;
  bool overflow = false;
  for (const std::int64_t dim : tensor.shape) {
    overflow |= __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits);
  }
  overflow |= __builtin_mul_overflow(bits, TensorDtypeBits(tensor.dtype), &bits);
  if (overflow) {
    return MakeCheckpointError(Kind::kValidationOverflow, PlaceOf(input, tensor.name),
                               "the product of its shape and its dtype's bits overflows 64 bits");
  }
  if (bits % 8 != 0) {
    return MakeCheckpointError(
        Kind::kMisalignedSlice, PlaceOf(input, tensor.name),
        absl::StrCat("its ", bits, " bits of ", TensorDtypeName(tensor.dtype),
                     " do not end at the end of a byte"));
  }
  return bits / 8;
}

// Tensors sorted by offset tile [0, data_bytes) exactly, each with the bytes that it implies.
// Offsets are still relative to the data.
absl::Status CheckTiling(const SafetensorsHeaderInput& input,
                         const std::vector<TensorInfo>& tensors) {
  std::uint64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.file_offset != end) {
      return MakeCheckpointError(
          Kind::kInvalidOffset, PlaceOf(input, tensor.name),
          absl::StrCat("its data begins at ", tensor.file_offset,
                       " of the data, but the tensor before it ends at ", end, ": the file has a ",
                       tensor.file_offset > end ? "hole" : "overlap"));
    }
    SY_ASSIGN_OR_RETURN(const std::uint64_t implied, ImpliedBytes(input, tensor));
    if (implied != tensor.bytes) {
      return MakeCheckpointError(Kind::kTensorInvalidInfo, PlaceOf(input, tensor.name),
                                 absl::StrCat("its offsets span ", tensor.bytes,
                                              " bytes, its shape and dtype imply ", implied));
    }
    end += tensor.bytes;
  }
  if (end != input.data_bytes) {
    return MakeCheckpointError(
        Kind::kMetadataIncompleteBuffer, PlaceOf(input),
        absl::StrCat("the header's tensors take ", end, " bytes, the file has ", input.data_bytes,
                     " behind its header: it is ",
                     end > input.data_bytes ? "truncated" : "too long", "; fetch it again"));
  }
  return absl::OkStatus();
}

absl::Status CheckNamesUnique(const SafetensorsHeaderInput& input,
                              const std::vector<TensorInfo>& tensors) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&tensors](std::uint32_t a, std::uint32_t b) {
    return tensors[a].name < tensors[b].name;
  });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(),
      [&tensors](std::uint32_t a, std::uint32_t b) { return tensors[a].name == tensors[b].name; });
  if (twice == order.end()) return absl::OkStatus();
  return MakeCheckpointError(Kind::kDuplicateKey, PlaceOf(input, tensors[*twice].name),
                             "the header lists this name twice");
}

absl::Status SortMetadata(const SafetensorsHeaderInput& input, SafetensorsHeader& header) {
  std::sort(header.metadata.begin(), header.metadata.end());
  const auto twice =
      std::adjacent_find(header.metadata.begin(), header.metadata.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == header.metadata.end()) return absl::OkStatus();
  return MakeCheckpointError(
      Kind::kDuplicateKey, PlaceOf(input),
      absl::StrCat("__metadata__ lists the key '", PrintableName(twice->first), "' twice"));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const SafetensorsHeaderInput& input,
                                                         const SafetensorsLimits& limits) {
  SY_RETURN_IF_ERROR(CheckText(input));
  SafetensorsHeader header;
  SY_RETURN_IF_ERROR(internal::ReadHeaderJson(input, limits, header));
  SY_RETURN_IF_ERROR(SortMetadata(input, header));
  SY_RETURN_IF_ERROR(CheckNamesUnique(input, header.tensors));
  // A zero-size tensor has the offset of the one behind it, so ties are sorted by size.
  std::sort(
      header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
        return a.file_offset != b.file_offset ? a.file_offset < b.file_offset : a.bytes < b.bytes;
      });
  SY_RETURN_IF_ERROR(CheckTiling(input, header.tensors));
  const std::uint64_t data_start = kLengthBytes + input.json.size();
  for (TensorInfo& tensor : header.tensors) tensor.file_offset += data_start;
  return header;
}

}  // namespace switchyard
