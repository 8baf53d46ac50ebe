// The weights of one routed expert: their names in the checkpoint, loading, hashing, verifying.
//
// Thread-safe: nothing here keeps state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/bf16.h"
#include "core/ids.h"
#include "core/weight_manifest.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace switchyard {

// Row-major, as stored in the checkpoint.
struct ExpertWeights {
  std::vector<Bf16> gate;  // [intermediate, hidden]
  std::vector<Bf16> up;    // [intermediate, hidden]
  std::vector<Bf16> down;  // [hidden, intermediate]

  [[nodiscard]] std::vector<Bf16>& of(Projection projection);
  [[nodiscard]] const std::vector<Bf16>& of(Projection projection) const;
  [[nodiscard]] std::span<const std::byte> bytes(Projection projection) const;

  friend bool operator==(const ExpertWeights&, const ExpertWeights&) = default;
};

// In the order of the manifest.
inline constexpr Projection kProjections[] = {Projection::kGate, Projection::kUp,
                                              Projection::kDown};

// As in the checkpoint: "model.layers.3.mlp.experts.7.gate_proj.weight". `config` is of a family
// of model_family.h or synthetic (then the name is only for texts).
std::string ExpertTensorName(const ModelConfig& config, LayerId layer, ExpertId expert,
                             Projection projection);

// kInvalidArgument (UNKNOWN_LAYER, EXPERT_OUT_OF_RANGE) for ids that the config does not have.
absl::Status CheckExpertId(const ModelConfig& config, LayerId layer, ExpertId expert);
// Of all routed experts of all layers.
std::uint64_t ExpertBytes(const ModelConfig& config);

// Reads the three tensors. Errors: those of CheckExpertId; (CHECKPOINT) naming the tensor:
// TENSOR_NOT_FOUND, WRONG_SHAPE, WRONG_DTYPE (only BF16 is served), IO_ERROR.
absl::StatusOr<ExpertWeights> LoadExpert(const Checkpoint& checkpoint, LayerId layer,
                                         ExpertId expert);

// Called now and then with the bytes hashed so far and in all; false stops with kCancelled.
using ManifestProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// SHA-256 of every tensor of every routed expert, read in pieces: memory does not grow with the
// model. Costs one read of the experts. Errors: as LoadExpert; kCancelled when `progress` says so.
absl::StatusOr<WeightManifest> BuildManifest(const Checkpoint& checkpoint,
                                             const ManifestProgress& progress = nullptr);

// Compares `weights` with the rows of that layer and expert among `expected`.
// Errors: kDataLoss (WEIGHT_HASH) naming the tensor and both hashes, or the row that is missing.
absl::Status VerifyExpert(const ModelConfig& config, LayerId layer, ExpertId expert,
                          const ExpertWeights& weights, std::span<const TensorHash> expected);

}  // namespace switchyard
