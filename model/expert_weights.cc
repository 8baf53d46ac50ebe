#include "model/expert_weights.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/error.h"
#include "core/status_macros.h"
#include "model/checkpoint_error.h"
#include "model/model_family.h"

namespace switchyard {
namespace {

using Kind = CheckpointErrorKind;

// One read at a time while hashing.
constexpr std::size_t kPieceBytes = 1U << 20U;

std::vector<std::int64_t> ShapeOfProjection(const ModelConfig& config, Projection projection) {
  if (projection == Projection::kDown) return {config.hidden_size, config.moe_intermediate};
  return {config.moe_intermediate, config.hidden_size};
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The tensor, with the shape and dtype that the config implies.
absl::StatusOr<const TensorInfo*> FindExpertTensor(const Checkpoint& checkpoint,
                                                   const std::string& name, Projection projection) {
  const CheckpointErrorPlace place{
      .file = checkpoint.FileOf(name), .tensor = name, .offset = std::nullopt};
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return MakeCheckpointError(
        Kind::kTensorNotFound, {.file = checkpoint.dir(), .tensor = name, .offset = std::nullopt},
        "config.json implies this tensor, the checkpoint has none; is it complete?");
  }
  const std::vector<std::int64_t> wanted = ShapeOfProjection(checkpoint.config(), projection);
  if (tensor->shape != wanted) {
    return MakeCheckpointError(Kind::kWrongShape, place,
                               absl::StrCat("its shape is ", ShapeText(tensor->shape),
                                            ", config.json implies ", ShapeText(wanted)));
  }
  if (tensor->dtype != TensorDtype::kBf16) {
    return MakeCheckpointError(
        Kind::kWrongDtype, place,
        absl::StrCat("its dtype is ", TensorDtypeName(tensor->dtype),
                     "; experts are served in BF16, use the BF16 checkpoint of this model"));
  }
  return tensor;
}

// Hashes tensor after tensor through one buffer.
class ManifestBuilder {
 public:
  ManifestBuilder(const Checkpoint& checkpoint, const ManifestProgress& progress)
      : checkpoint_(checkpoint),
        progress_(progress),
        piece_(kPieceBytes),
        total_bytes_(ExpertBytes(checkpoint.config())) {}

  absl::StatusOr<Sha256Digest> Hash(LayerId layer, ExpertId expert, Projection projection) {
    const std::string name = ExpertTensorName(checkpoint_.config(), layer, expert, projection);
    SY_ASSIGN_OR_RETURN(const TensorInfo* tensor, FindExpertTensor(checkpoint_, name, projection));
    Sha256Stream stream;
    for (std::uint64_t at = 0; at < tensor->bytes;) {
      const std::size_t bytes = std::min<std::uint64_t>(kPieceBytes, tensor->bytes - at);
      const std::span<std::byte> piece(piece_.data(), bytes);
      SY_RETURN_IF_ERROR(checkpoint_.ReadRange(name, at, piece));
      stream.Update(piece);
      at += bytes;
      done_bytes_ += bytes;
      if (progress_ && !progress_(done_bytes_, total_bytes_)) {
        return absl::CancelledError(
            absl::StrCat(checkpoint_.dir(), ": hashing of the expert weights was stopped"));
      }
    }
    return stream.Finish();
  }

 private:
  const Checkpoint& checkpoint_;
  const ManifestProgress& progress_;
  std::vector<std::byte> piece_;
  const std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace

std::vector<Bf16>& ExpertWeights::of(Projection projection) {
  switch (projection) {
    case Projection::kGate:
      return gate;
    case Projection::kUp:
      return up;
    case Projection::kDown:
      break;
  }
  return down;
}

const std::vector<Bf16>& ExpertWeights::of(Projection projection) const {
  return const_cast<ExpertWeights*>(this)->of(projection);
}

std::span<const std::byte> ExpertWeights::bytes(Projection projection) const {
  return std::as_bytes(std::span(of(projection)));
}

std::string ExpertTensorName(const ModelConfig& config, LayerId layer, ExpertId expert,
                             Projection projection) {
  const ModelFamily* family = FindModelFamily(config.model_type);
  if (family == nullptr) {
    return absl::StrCat("layers.", layer.value, ".experts.", expert.value, ".",
                        ProjectionName(projection));
  }
  return absl::StrReplaceAll(
      family->expert_tensors[static_cast<std::size_t>(projection)],
      {{"{layer}", absl::StrCat(layer.value)}, {"{expert}", absl::StrCat(expert.value)}});
}

absl::Status CheckExpertId(const ModelConfig& config, LayerId layer, ExpertId expert) {
  const std::vector<LayerId> layers = MoeLayersOf(config);
  if (std::find(layers.begin(), layers.end(), layer) == layers.end()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer,
                     absl::StrCat("layer ", layer.value, " has no routed experts in this model"),
                     {{"layer", absl::StrCat(layer.value)}});
  }
  if (expert.value < 0 || expert.value >= config.experts) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange,
        absl::StrCat("expert ", expert.value, " is not one of the model's ", config.experts),
        {{"layer", absl::StrCat(layer.value)}, {"expert", absl::StrCat(expert.value)}});
  }
  return absl::OkStatus();
}

std::uint64_t ExpertBytes(const ModelConfig& config) {
  return static_cast<std::uint64_t>(config.hidden_size) *
         static_cast<std::uint64_t>(config.moe_intermediate) * std::size(kProjections) *
         sizeof(Bf16) * static_cast<std::uint64_t>(config.experts) * MoeLayersOf(config).size();
}

absl::StatusOr<ExpertWeights> LoadExpert(const Checkpoint& checkpoint, LayerId layer,
                                         ExpertId expert) {
  SY_RETURN_IF_ERROR(CheckExpertId(checkpoint.config(), layer, expert));
  ExpertWeights weights;
  for (const Projection projection : kProjections) {
    const std::string name = ExpertTensorName(checkpoint.config(), layer, expert, projection);
    SY_ASSIGN_OR_RETURN(const TensorInfo* tensor, FindExpertTensor(checkpoint, name, projection));
    std::vector<Bf16>& values = weights.of(projection);
    values.resize(tensor->bytes / sizeof(Bf16));
    SY_RETURN_IF_ERROR(checkpoint.Read(name, std::as_writable_bytes(std::span(values))));
  }
  return weights;
}

absl::StatusOr<WeightManifest> BuildManifest(const Checkpoint& checkpoint,
                                             const ManifestProgress& progress) {
  ManifestBuilder builder(checkpoint, progress);
  WeightManifest manifest;
  for (const LayerId layer : MoeLayersOf(checkpoint.config())) {
    for (std::int32_t expert = 0; expert < checkpoint.config().experts; ++expert) {
      for (const Projection projection : kProjections) {
        SY_ASSIGN_OR_RETURN(const Sha256Digest digest,
                            builder.Hash(layer, ExpertId{expert}, projection));
        manifest.tensors.push_back({layer, ExpertId{expert}, projection, digest});
      }
    }
  }
  return manifest;
}

absl::Status VerifyExpert(const ModelConfig& config, LayerId layer, ExpertId expert,
                          const ExpertWeights& weights, std::span<const TensorHash> expected) {
  for (const Projection projection : kProjections) {
    const std::string name = ExpertTensorName(config, layer, expert, projection);
    const auto row = std::find_if(expected.begin(), expected.end(), [&](const TensorHash& hash) {
      return hash.layer == layer && hash.expert == expert && hash.projection == projection;
    });
    const Sha256Digest found = Sha256(weights.bytes(projection));
    if (row != expected.end() && row->sha256 == found) continue;
    const std::string wanted = row == expected.end() ? "no hash at all" : row->sha256.ToHex();
    return MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash,
                     absl::StrCat("tensor '", name, "': the loaded weights have SHA-256 ",
                                  found.ToHex(), ", the deployment's manifest has ", wanted,
                                  "; give this worker the checkpoint that was applied"),
                     {{"tensor", name},
                      {"layer", absl::StrCat(layer.value)},
                      {"expert", absl::StrCat(expert.value)},
                      {"found", found.ToHex()},
                      {"expected", wanted}});
  }
  return absl::OkStatus();
}

}  // namespace switchyard
