// The weights of one routed expert: their names in the checkpoint, loading, hashing, verifying.
//
// Thread-safe: nothing here keeps state.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/activation_format.h"
#include "core/base/hash.h"
#include "core/format/bf16.h"
#include "core/format/weight_scales.h"
#include "core/ids.h"
#include "core/weight_manifest.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace switchyard {

// Row-major. Quantized weights come as values and scales (model/experts/expert_values.h).
struct ExpertWeights {
  std::vector<Bf16> gate;                      // [intermediate, hidden]
  std::vector<Bf16> up;                        // [intermediate, hidden]
  std::vector<Bf16> down;                      // [hidden, intermediate]
  std::array<WeightScales, 3> scales{};        // by Projection
  std::array<std::vector<float>, 3> biases{};  // by Projection; empty: none
  ActivationSpec inputs{};                     // the rounding of rows before gate and up
  ActivationSpec middle{};                     // and of rows before down
  // Hashes of the stored tensors by Projection; nullopt when the checkpoint stores the BF16 values
  // themselves.
  std::optional<std::array<Sha256Digest, 3>> stored{};

  [[nodiscard]] std::vector<Bf16>& of(Projection projection);
  [[nodiscard]] const std::vector<Bf16>& of(Projection projection) const;
  // The BF16 values as bytes, in the machine's order, which is the file's on little-endian
  // machines.
  [[nodiscard]] std::span<const std::byte> bytes(Projection projection) const;

  friend bool operator==(const ExpertWeights&, const ExpertWeights&) = default;
};

// The name in a BF16 checkpoint of the family whose experts have tensors of their own:
// "model.layers.3.mlp.experts.7.gate_proj.weight". Only for texts: packed experts share a tensor.
std::string ExpertTensorName(const ModelConfig& config, LayerId layer, ExpertId expert,
                             Projection projection);

// kInvalidArgument (UNKNOWN_LAYER, EXPERT_OUT_OF_RANGE) for ids that the config does not have.
absl::Status CheckExpertId(const ModelConfig& config, LayerId layer, ExpertId expert);
// The bytes of all routed experts of all layers, in BF16.
// For estimates: stored bytes of a quantized model are fewer.
std::uint64_t ExpertBytes(const ModelConfig& config);

// Reads the expert's tensors, whatever their scheme. Errors: those of CheckExpertId and of
// LayerExperts::Load: (CHECKPOINT) naming the tensor: TENSOR_NOT_FOUND, WRONG_SHAPE, WRONG_DTYPE,
// WRONG_VALUE, UNEXPECTED_TENSOR, IO_ERROR.
absl::StatusOr<ExpertWeights> LoadExpert(const Checkpoint& checkpoint, LayerId layer,
                                         ExpertId expert);

// Called for each piece with the bytes hashed so far and in total, from one thread at a time; false
// stops with kCancelled.
using ManifestProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// The SHA-256 of each projection of each routed expert: of its stored bytes, and for a quantized
// one also of its layout's parameters, without which the bytes have no meaning. Reads in pieces, so
// that memory does not grow with the model. Costs one read of the experts, by `threads` threads
// (ParallelEach). Errors: as LoadExpert; kCancelled when `progress` returns false.
absl::StatusOr<WeightManifest> BuildManifest(const Checkpoint& checkpoint,
                                             const ManifestProgress& progress = nullptr,
                                             int threads = 1);

// Compares `weights` with the rows of that layer and expert among `expected`.
// Errors: kDataLoss (WEIGHT_HASH) naming the tensor and both hashes, or the row that is missing.
absl::Status VerifyExpert(const ModelConfig& config, LayerId layer, ExpertId expert,
                          const ExpertWeights& weights, std::span<const TensorHash> expected);

}  // namespace switchyard
