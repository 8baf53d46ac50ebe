// Golden files: what a trusted implementation computed from the same weights.
//
// A safetensors file with, for any number of names (which may hold dots):
//   <name>.lL.moe_in, <name>.lL.moe_out   F32 [n, hidden]: what enters and leaves the MoE block L
//   <name>.ids      I32 [n]               a prompt
//   <name>.logits   F32 [n, vocab]        logits after each of its tokens
//   <name>.greedy   I32 [n + m]           the prompt and m >= 0 greedy tokens
// A name has some of these; moe_in and moe_out go together. Other tensors are left alone.
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

// The model that a golden file must fit.
struct GoldenShape {
  std::size_t layers = 0;
  std::size_t hidden = 0;
  std::size_t vocab = 0;
  std::size_t positions = 0;  // longest text
};

struct GoldenBlock {
  std::string name;
  LayerId layer;
  std::size_t rows = 0;
};
struct GoldenBlockData {
  std::vector<float> in;   // [rows, hidden]
  std::vector<float> out;  // [rows, hidden]
};

// Empty: the file has no such tensor.
struct GoldenText {
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<float> logits;  // [ids, vocab]
  std::vector<std::int32_t> greedy;
};

// Immutable after Open; thread-safe.
class GoldenFile {
 public:
  // Errors: those of the safetensors reader; kInvalidArgument, naming file and tensor: BAD_DTYPE,
  // BAD_SHAPE (also for no rows, a half of a pair missing, a text longer than the model takes),
  // UNKNOWN_LAYER, BAD_REQUEST for an id outside the vocabulary, a number that is not finite, a
  // greedy text that does not begin with its prompt, or a file with nothing to check.
  static absl::StatusOr<std::unique_ptr<GoldenFile>> Open(const std::string& path,
                                                          const GoldenShape& shape);

  // Ascending by name, then layer.
  [[nodiscard]] const std::vector<GoldenBlock>& blocks() const { return blocks_; }
  // Ascending by name.
  [[nodiscard]] const std::vector<GoldenText>& texts() const { return texts_; }
  // Tensors that are no part of the format.
  [[nodiscard]] const std::vector<std::string>& ignored() const { return ignored_; }

  // One block's tensors; `block` is one of blocks(). Errors as those of Open for its numbers.
  [[nodiscard]] absl::StatusOr<GoldenBlockData> ReadBlock(const GoldenBlock& block) const;

 private:
  explicit GoldenFile(std::unique_ptr<SafetensorsFile> file) : file_(std::move(file)) {}

  std::unique_ptr<SafetensorsFile> file_;
  std::vector<GoldenBlock> blocks_;
  std::vector<GoldenText> texts_;
  std::vector<std::string> ignored_;
};

}  // namespace switchyard::qwen3_moe
