// A Qwen3-MoE decoder on the CPU with everything except the routed experts: embedding, attention
// with grouped queries, QK-norm and RoPE, router, KV cache, logits. The caller of Forward provides
// the experts. It stands for an inference engine that uses Switchyard.
//
// Arithmetic is FP32 on BF16 weights that are converted at load. The logits of a position only
// depend on the tokens up to it, bit for bit, whether these are fed whole, in parts or one by one
// (if the MoE function guarantees the same). Forward computes on the caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/ids.h"
#include "examples/qwen3_moe/decoder_weights.h"
#include "examples/qwen3_moe/kv_cache.h"
#include "examples/qwen3_moe/moe_call.h"
#include "examples/qwen3_moe/rope.h"
#include "examples/qwen3_moe/router.h"
#include "model/checkpoint.h"

namespace switchyard::qwen3_moe {

// The positions for which Forward returns logits: the last one for generating, all for scoring.
enum class LogitsOf { kLast, kAll };

// One forward pass.
struct ForwardCall {
  std::span<const std::int32_t> tokens;  // at least one, each in [0, vocab)
  LogitsOf logits = LogitsOf::kLast;
};

// Immutable after Load. Forward is thread-safe if each caller has its own cache.
class Decoder {
 public:
  // Reads every tensor except those of the routed experts (`*.mlp.experts.*`), so a source needs no
  // memory for them.
  // Errors: those of the checkpoint; kUnimplemented (UNSUPPORTED) for a model with dense layers,
  // attention bias or scaled RoPE.
  static absl::StatusOr<std::unique_ptr<Decoder>> Load(const Checkpoint& checkpoint);

  [[nodiscard]] const DecoderDims& dims() const { return dims_; }
  // Names of the tensors that Load read.
  [[nodiscard]] const std::vector<std::string>& tensor_names() const { return weights_.names; }
  // A cache for an empty sequence of up to `capacity` tokens.
  [[nodiscard]] KvCache MakeCache(std::size_t capacity) const;
  // The router of one of the layers 0..dims().layers - 1, all of which are MoE layers.
  [[nodiscard]] const Router& router(LayerId layer) const;

  // Appends `tokens` to the sequence of `cache` and returns logits, [1 or tokens, vocab].
  // An error leaves the sequence unchanged, so the call can be repeated. Errors: kInvalidArgument
  // (BAD_REQUEST) for no tokens, an id outside the vocabulary or more tokens than the cache or the
  // model has positions; those of `moe`, annotated with the layer.
  absl::StatusOr<std::vector<float>> Forward(KvCache& cache, const ForwardCall& call,
                                             const MoePath& moe) const;

 private:
  struct Activations;

  Decoder(const DecoderDims& dims, DecoderWeights weights);
  // Errors: see Forward.
  [[nodiscard]] absl::Status CheckCall(const KvCache& cache, const ForwardCall& call) const;
  // One block of a layer: adds its update to the residual stream.
  void AttentionBlock(std::size_t layer, KvCache& cache, Activations& act) const;
  absl::Status MoeBlock(std::size_t layer, const MoePath& moe, Activations& act) const;
  // Final norm and head, for the last row or for all.
  [[nodiscard]] std::vector<float> Logits(std::span<const float> x, LogitsOf which) const;

  DecoderDims dims_;
  DecoderWeights weights_;
  Rope rope_;
};

}  // namespace switchyard::qwen3_moe
