// The decoder's part of a checkpoint: sizes, and every weight except those of the routed experts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "examples/qwen3_moe/panel_matmul.h"
#include "examples/qwen3_moe/router.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace switchyard::qwen3_moe {

// Sizes and constants of the model, from config.json.
struct DecoderDims {
  std::size_t layers = 0;
  std::size_t hidden = 0;
  std::size_t heads = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t vocab = 0;
  std::size_t experts = 0;
  std::size_t top_k = 0;
  std::size_t moe_intermediate = 0;
  std::size_t max_positions = 0;  // longest sequence, in tokens
  float rms_norm_eps = 0;
  double rope_theta = 0;
  // Weights of the chosen experts are divided by their sum.
  bool normalize_top_k = false;
  // The head is the embedding.
  bool tied_embeddings = false;
};

// Refuses models that this decoder would compute wrongly, rather than generating plausible
// nonsense. Errors: kUnimplemented (UNSUPPORTED) with the unsupported field, or with metadata
// {model_type} for another architecture.
absl::StatusOr<DecoderDims> DimsOf(const ModelConfig& config);

// The weights of one layer; norms are vectors, projections are packed for PanelMatMul.
struct LayerWeights {
  // Applied in front of attention.
  std::vector<float> input_norm;
  // Projections of the attention block.
  PackedMatrix query;
  PackedMatrix key;
  PackedMatrix value;
  PackedMatrix output;
  // Norms of each head, which Qwen3 applies before the rotation.
  std::vector<float> query_norm;  // one head wide
  std::vector<float> key_norm;
  // Norm and router of the MoE block, whose experts are not loaded here.
  std::vector<float> moe_norm;
  Router router;
};

// Everything that the decoder loads.
struct DecoderWeights {
  std::vector<float> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;
  PackedMatrix head;               // [vocab, hidden]; a packed copy of the embedding if tied
  std::vector<std::string> names;  // of the tensors that were read, in order
};

// Reads every tensor once; costs the bytes of the model without its routed experts, in FP32.
// Errors: those of TensorReader.
absl::StatusOr<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint,
                                                  const DecoderDims& dims);

}  // namespace switchyard::qwen3_moe
