// Golden files: results that a trusted implementation computed from the same weights.
//
// A safetensors file with, for any number of names (which may hold dots):
//   <name>.lL.moe_in, <name>.lL.moe_out   F32 [n, hidden]: input and output of the MoE block L
//   <name>.ids      I32 [n]               a prompt
//   <name>.logits   F32 [n, vocab]        logits after each of its tokens
//   <name>.greedy   I32 [n + m]           the prompt and m >= 0 greedy tokens
// A name may have any of these, but moe_in and moe_out only together. Other tensors are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "model/safetensors/safetensors.h"

namespace switchyard::qwen3_moe {

// The sizes that a golden file must have to fit a model.
struct GoldenShape {
  std::size_t layers = 0;
  std::size_t hidden = 0;
  std::size_t vocab = 0;
  std::size_t positions = 0;  // longest text
};

// A MoE block. Its tensors are read on demand, because they can be large.
struct GoldenBlock {
  std::string name;
  LayerId layer;
  std::size_t rows = 0;
};
// The tensors of one block.
struct GoldenBlockData {
  std::vector<float> in;   // [rows, hidden]
  std::vector<float> out;  // [rows, hidden]
};

// A text. A vector is empty if the file has no such tensor.
struct GoldenText {
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids, vocab]
  std::vector<std::int32_t> greedy;
};

// Immutable after Open; thread-safe.
class GoldenFile {
 public:
  // Errors: those of the safetensors reader; kInvalidArgument with file and tensor: BAD_DTYPE,
  // BAD_SHAPE (also for no rows, half of a pair, or a text with more tokens than the model has
  // positions), UNKNOWN_LAYER, BAD_REQUEST for an id outside the vocabulary, a number that is not
  // finite, a greedy text that does not start with its prompt, or a file with nothing to check.
  static absl::StatusOr<std::unique_ptr<GoldenFile>> Open(const std::string& path,
                                                          const GoldenShape& shape);

  // Ascending by name, then layer.
  [[nodiscard]] const std::vector<GoldenBlock>& blocks() const { return blocks_; }
  // Ascending by name.
  [[nodiscard]] const std::vector<GoldenText>& texts() const { return texts_; }
  // Names of the tensors that are not part of the format.
  [[nodiscard]] const std::vector<std::string>& ignored() const { return ignored_; }

  // Reads the tensors of one of blocks(). Errors: as for Open.
  [[nodiscard]] absl::StatusOr<GoldenBlockData> ReadBlock(const GoldenBlock& block) const;

 private:
  explicit GoldenFile(std::unique_ptr<SafetensorsFile> file) : file_(std::move(file)) {}

  std::unique_ptr<SafetensorsFile> file_;
  std::vector<GoldenBlock> blocks_;
  std::vector<GoldenText> texts_;
  std::vector<std::string> ignored_;
};

}  // namespace switchyard::qwen3_moe
