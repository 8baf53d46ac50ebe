// Reads weights as FP32 and records their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "examples/qwen3_moe/panel_matmul.h"
#include "model/checkpoint.h"

namespace switchyard::qwen3_moe {

// Every weight of the decoder is read through this class, which makes the list of names complete.
// Not thread-safe. The checkpoint must outlive it.
class TensorReader {
 public:
  explicit TensorReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // A vector or row-major matrix that is stored as BF16 or F32. Errors (CHECKPOINT):
  // TENSOR_NOT_FOUND, WRONG_SHAPE, WRONG_DTYPE and those of Checkpoint::Read.
  // Converted once here, so that the decoder has no code for BF16.
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, std::size_t size);
  absl::StatusOr<std::vector<float>> Matrix(const std::string& name, std::size_t rows,
                                            std::size_t columns);
  // The same matrix, packed for products with it.
  absl::StatusOr<PackedMatrix> Packed(const std::string& name, std::size_t rows,
                                      std::size_t columns);

  // Names of the tensors that were read, in order. Tests check that no expert is among them.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  // Checks the shape before reading, so that a wrong config.json fails with the tensor's name.
  absl::StatusOr<std::vector<float>> Read(const std::string& name,
                                          const std::vector<std::int64_t>& shape);

  const Checkpoint& checkpoint_;
  std::vector<std::string> names_;
};

}  // namespace switchyard::qwen3_moe
