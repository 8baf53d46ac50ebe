// Writes safetensors files for tests. What the reader is to refuse is made by giving a tensor bytes
// that do not fit, or by changing the bytes afterwards.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/format/bf16.h"

namespace switchyard::testing {

struct WrittenTensor {
  std::string name;  // written as it is between quotes
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string BytesOf(std::span<const T> values) {
  std::string bytes(values.size_bytes(), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline WrittenTensor F32Tensor(std::string name, std::vector<std::int64_t> shape,
                               std::span<const float> values) {
  return {std::move(name), "F32", std::move(shape), BytesOf(values)};
}

inline WrittenTensor I32Tensor(std::string name, std::vector<std::int64_t> shape,
                               std::span<const std::int32_t> values) {
  return {std::move(name), "I32", std::move(shape), BytesOf(values)};
}

// Rounds `values` to BF16.
inline WrittenTensor Bf16Tensor(std::string name, std::vector<std::int64_t> shape,
                                std::span<const float> values) {
  std::vector<Bf16> rounded(values.size());
  FloatsToBf16(values, rounded);
  return {std::move(name), "BF16", std::move(shape), BytesOf(std::span<const Bf16>(rounded))};
}

// The file's bytes, tensors in the order given.
inline std::string SafetensorsBytes(const std::vector<WrittenTensor>& tensors) {
  std::vector<std::string> entries;
  std::string data;
  for (const WrittenTensor& tensor : tensors) {
    entries.push_back(absl::StrCat("\"", tensor.name, "\":{\"dtype\":\"", tensor.dtype,
                                   "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                                   "],\"data_offsets\":[", data.size(), ",",
                                   data.size() + tensor.bytes.size(), "]}"));
    data += tensor.bytes;
  }
  const std::string header = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  const std::uint64_t length = header.size();
  return absl::StrCat(BytesOf(std::span<const std::uint64_t>(&length, 1)), header, data);
}

}  // namespace switchyard::testing
