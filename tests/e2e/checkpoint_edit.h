// Copies of the shipped checkpoint with something changed.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

#include "core/format/bf16.h"
#include "tests/e2e/batch.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

// A safetensors file in its two parts.
struct TensorFile {
  explicit TensorFile(const std::string& path) {
    const std::string bytes = ReadBytes(path);
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    header = nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
    data = bytes.substr(sizeof(header_bytes) + header_bytes);
  }
  [[nodiscard]] std::size_t begin(const std::string& tensor) const {
    return header.at(tensor).at("data_offsets")[0].get<std::size_t>();
  }
  [[nodiscard]] std::size_t end(const std::string& tensor) const {
    return header.at(tensor).at("data_offsets")[1].get<std::size_t>();
  }
  void Write(const std::string& path) const {
    const std::string text = header.dump();
    const std::uint64_t header_bytes = text.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << text << data;
  }

  nlohmann::json header;
  std::string data;
};

// Multiplies one BF16 tensor of a file, in place.
inline void ScaleTensor(const std::string& path, const std::string& tensor, float factor) {
  TensorFile file(path);
  for (std::size_t at = file.begin(tensor); at < file.end(tensor); at += sizeof(Bf16)) {
    Bf16 value = 0;
    std::memcpy(&value, &file.data[at], sizeof(value));
    value = FloatToBf16(Bf16ToFloat(value) * factor);
    std::memcpy(&file.data[at], &value, sizeof(value));
  }
  file.Write(path);
}

// The shipped model in `folder`, without a single routed expert.
inline void CopyWithoutExperts(const std::string& folder) {
  std::filesystem::copy(kShippedModel, folder);
  TensorFile whole(folder + "/model.safetensors");
  TensorFile rest = whole;
  rest.header.clear();
  rest.data.clear();
  for (const auto& [name, tensor] : whole.header.items()) {
    if (name == "__metadata__" || name.find(".mlp.experts.") != std::string::npos) continue;
    const std::size_t begin = rest.data.size();
    rest.data += whole.data.substr(whole.begin(name), whole.end(name) - whole.begin(name));
    rest.header[name] = tensor;
    rest.header[name]["data_offsets"] = {begin, rest.data.size()};
  }
  rest.Write(folder + "/model.safetensors");
}

}  // namespace switchyard::testing
