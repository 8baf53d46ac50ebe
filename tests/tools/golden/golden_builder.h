// Golden files for tests, right or damaged on purpose.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {

class GoldenBuilder {
 public:
  GoldenBuilder& Floats(const std::string& name, std::size_t rows, std::span<const float> values) {
    const auto width = static_cast<std::int64_t>(values.size() / rows);
    return Add(testing::F32Tensor(name, {static_cast<std::int64_t>(rows), width}, values));
  }
  GoldenBuilder& Ids(const std::string& name, const std::vector<std::int32_t>& ids) {
    return Add(testing::I32Tensor(name, {static_cast<std::int64_t>(ids.size())}, ids));
  }
  GoldenBuilder& Add(testing::WrittenTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // Returns the file's path in `dir`.
  [[nodiscard]] std::string Write(const testing::TempDir& dir) const {
    return dir.Write("golden.safetensors", testing::SafetensorsBytes(tensors_));
  }

 private:
  std::vector<testing::WrittenTensor> tensors_;
};

}  // namespace switchyard::qwen3_moe
