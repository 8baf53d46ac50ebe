// The JSON header of a safetensors file: parsed strictly, in memory bounded by the header's size.
//
//   | u64 little endian N | N bytes of JSON | data: the tensors, back to back, to the end of file |
//
// Everything that the reference reader accepts is accepted (whitespace around the JSON, unknown
// fields of a tensor, tensors in any order, rank 0, zero-size tensors) with these exceptions: a key
// that occurs twice, a dimension above 2^63 - 1, a tensor written as an array, and the limits
// below. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// One tensor of a file: little endian, C order.
struct TensorInfo {
  std::string name;
  TensorDtype dtype = TensorDtype::kBool;
  std::vector<std::int64_t> shape;  // each >= 0; empty is rank 0, one element
  std::uint64_t file_offset = 0;    // of its first byte, from the start of the file
  std::uint64_t bytes = 0;

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// The limits of a file. The default of header_bytes_max is the reference
// reader's; the others are far above any real checkpoint.
struct SafetensorsLimits {
  std::uint64_t header_bytes_max = 100'000'000;
  std::size_t dims_max = 64;  // rank of a tensor
  std::size_t depth_max = 128;
  std::size_t tensors_max = 2'000'000;
  std::size_t metadata_entries_max = 65'536;
};

// The checked header: its tensors tile the data exactly.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;                            // ascending file_offset
  std::vector<std::pair<std::string, std::string>> metadata;  // ascending key
};

// The input: the header's N bytes of JSON, the number of bytes behind them in the file, and the
// file's name for errors.
struct SafetensorsHeaderInput {
  absl::string_view json;
  std::uint64_t data_bytes = 0;
  absl::string_view file;
};

// Errors: kDataLoss (CHECKPOINT) with the kind of checkpoint_error.h, naming file and tensor. The
// tensors of a header that is returned tile the data exactly. Allocates at most a small multiple of
// the header's bytes (tests/model/safetensors_limits_test.cc holds it to 6).
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const SafetensorsHeaderInput& input,
                                                         const SafetensorsLimits& limits = {});

}  // namespace switchyard
