#include "model/expert_weights.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/parallel_each.h"
#include "core/base/status_macros.h"
#include "model/experts/expert_names.h"
#include "model/experts/expert_values.h"

namespace switchyard {
namespace {

// The size of one read while hashing.
constexpr std::size_t kPieceBytes = 1U << 20U;

// True when the projection is one BF16 tensor, whose bytes are the values.
bool IsStoredAsServed(const RawProjection& projection) {
  return projection.quant.layout == QuantLayout::kBf16 && projection.tensors.size() == 1;
}

// The parameters without which the stored bytes have no meaning: those of the layout, and the
// scales of the whole layer. They go into the hash, so that equal hashes mean equal experts.
std::string MeaningOf(const ProjectionQuant& quant, const LayerInputScales& scales) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  return absl::StrCat(QuantLayoutInfoOf(quant.layout).name, " ", quant.group_size, " ",
                      quant.block[0], "x", quant.block[1], " ", quant.zero_points, " ",
                      quant.static_inputs, " ", quant.power_of_two_scales, " ",
                      bits(scales.gate_up_max), " ", bits(scales.down_max));
}

// The manifest's hash of a projection whose stored bytes have the hash `bytes`. Plain BF16 keeps
// the hash of its bytes, so that packed and separate experts of one model have equal manifests.
absl::StatusOr<Sha256Digest> StoredHash(const Checkpoint& checkpoint, LayerId layer,
                                        Projection projection, const Sha256Digest& bytes) {
  SY_ASSIGN_OR_RETURN(const LayerExperts* experts, checkpoint.ExpertsOf(layer));
  const ProjectionQuant& quant = experts->quant().of(projection);
  if (quant.layout == QuantLayout::kBf16) return bytes;
  SY_ASSIGN_OR_RETURN(const LayerInputScales scales, checkpoint.InputScalesOf(layer));
  return Sha256(absl::StrCat(bytes.ToHex(), " ", MeaningOf(quant, scales)));
}

// Hashes the projections of all experts.
class ManifestBuilder {
 public:
  ManifestBuilder(const Checkpoint& checkpoint, const ManifestProgress& progress)
      : checkpoint_(checkpoint), progress_(progress) {}

  absl::StatusOr<WeightManifest> Build(int threads) {
    // From the headers only, so that progress can be a share of the whole.
    SY_RETURN_IF_ERROR(Locate());
    const auto hash = [this](std::size_t i) -> absl::Status {
      SY_ASSIGN_OR_RETURN(const Sha256Digest bytes, Hash(extents_[i]));
      TensorHash& row = manifest_.tensors[i];
      SY_ASSIGN_OR_RETURN(row.sha256, StoredHash(checkpoint_, row.layer, row.projection, bytes));
      return absl::OkStatus();
    };
    SY_RETURN_IF_ERROR(ParallelEach(extents_.size(), threads, hash));
    return std::move(manifest_);
  }

 private:
  absl::Status Locate() {
    for (const LayerId layer : MoeLayersOf(checkpoint_.config())) {
      SY_ASSIGN_OR_RETURN(const LayerExperts* experts, checkpoint_.ExpertsOf(layer));
      for (std::int32_t expert = 0; expert < checkpoint_.config().experts; ++expert) {
        for (const Projection projection : kAllProjections) {
          SY_ASSIGN_OR_RETURN(std::vector<TensorExtent> extents,
                              experts->Extents(expert, projection));
          for (const TensorExtent& extent : extents) total_bytes_ += extent.bytes;
          manifest_.tensors.push_back({layer, ExpertId{expert}, projection, {}});
          extents_.push_back(std::move(extents));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Sha256Digest> Hash(const std::vector<TensorExtent>& extents) {
    Sha256Stream stream;
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
    for (const TensorExtent& extent : extents) {
      SY_RETURN_IF_ERROR(Hash(extent, {buffer.get(), kPieceBytes}, &stream));
    }
    return stream.Finish();
  }

  absl::Status Hash(const TensorExtent& extent, std::span<std::byte> buffer, Sha256Stream* stream) {
    for (std::uint64_t at = 0; at < extent.bytes;) {
      const std::span<std::byte> piece =
          buffer.first(std::min<std::uint64_t>(buffer.size(), extent.bytes - at));
      SY_RETURN_IF_ERROR(checkpoint_.ReadRange(extent.name, extent.offset + at, piece));
      stream->Update(piece);
      at += piece.size();
      SY_RETURN_IF_ERROR(Report(piece.size()));
    }
    return absl::OkStatus();
  }

  absl::Status Report(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    done_bytes_ += bytes;
    if (!stopped_ && progress_) stopped_ = !progress_(done_bytes_, total_bytes_);
    if (!stopped_) return absl::OkStatus();
    return absl::CancelledError(
        absl::StrCat(checkpoint_.dir(), ": hashing of the expert weights was stopped"));
  }

  const Checkpoint& checkpoint_;
  const ManifestProgress& progress_;
  WeightManifest manifest_;
  std::vector<std::vector<TensorExtent>> extents_;  // of each of its tensors
  std::uint64_t total_bytes_ = 0;
  Mutex mutex_;
  std::uint64_t done_bytes_ SY_GUARDED_BY(mutex_) = 0;
  bool stopped_ SY_GUARDED_BY(mutex_) = false;
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
  const std::optional<ExpertModules> modules = UsualExpertModules(ExpertLayerOf(config, layer));
  if (!modules.has_value()) {
    return absl::StrCat("layers.", layer.value, ".experts.", expert.value, ".",
                        ProjectionName(projection));
  }
  return absl::StrCat(modules->Name(expert.value, projection), ".weight");
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

// For progress and plans: workers hold values in BF16 whatever the checkpoint stores.
std::uint64_t ExpertBytes(const ModelConfig& config) {
  return static_cast<std::uint64_t>(config.hidden_size) *
         static_cast<std::uint64_t>(config.moe_intermediate) * kAllProjections.size() *
         sizeof(Bf16) * static_cast<std::uint64_t>(config.experts) * MoeLayersOf(config).size();
}

absl::StatusOr<ExpertWeights> LoadExpert(const Checkpoint& checkpoint, LayerId layer,
                                         ExpertId expert) {
  SY_RETURN_IF_ERROR(CheckExpertId(checkpoint.config(), layer, expert));
  SY_ASSIGN_OR_RETURN(const LayerExperts* experts, checkpoint.ExpertsOf(layer));
  SY_ASSIGN_OR_RETURN(const RawExpert raw, experts->Load(expert.value));
  ExpertWeights weights;
  bool as_stored = true;
  for (const Projection projection : kAllProjections) {
    as_stored = as_stored && IsStoredAsServed(raw.of(projection));
    ProjectionValues values = ValuesOf(raw.of(projection));
    const auto index = static_cast<std::size_t>(projection);
    weights.of(projection) = std::move(values.values);
    weights.scales[index] = std::move(values.scales);
    weights.biases[index] = std::move(values.bias);
  }
  // Values that are the stored bytes are hashed when they are verified, and only then: a second
  // hash would be a quarter of the time of loading.
  if (!as_stored) {
    weights.stored = raw.Stored();
    for (const Projection projection : kAllProjections) {
      Sha256Digest& digest = (*weights.stored)[static_cast<std::size_t>(projection)];
      SY_ASSIGN_OR_RETURN(digest, StoredHash(checkpoint, layer, projection, digest));
    }
  }
  // Only schemes that round rows need the layer's scales, which cost a read of every expert's.
  if (!ActivationFormatsOf(experts->quant().scheme).empty()) {
    SY_ASSIGN_OR_RETURN(const LayerInputScales scales, checkpoint.InputScalesOf(layer));
    const ExpertActivations activations = ActivationsOf(experts->quant(), raw, scales);
    weights.inputs = activations.inputs;
    weights.middle = activations.middle;
  }
  return weights;
}

absl::StatusOr<WeightManifest> BuildManifest(const Checkpoint& checkpoint,
                                             const ManifestProgress& progress, int threads) {
  return ManifestBuilder(checkpoint, progress).Build(threads);
}

absl::Status VerifyExpert(const ModelConfig& config, LayerId layer, ExpertId expert,
                          const ExpertWeights& weights, std::span<const TensorHash> expected) {
  for (const Projection projection : kAllProjections) {
    const std::string name = ExpertTensorName(config, layer, expert, projection);
    const auto row = std::find_if(expected.begin(), expected.end(), [&](const TensorHash& hash) {
      return hash.layer == layer && hash.expert == expert && hash.projection == projection;
    });
    const Sha256Digest found = weights.stored
                                   ? (*weights.stored)[static_cast<std::size_t>(projection)]
                                   : Sha256(weights.bytes(projection));
    if (row != expected.end() && row->sha256 == found) continue;
    const std::string wanted = row == expected.end() ? "no hash" : row->sha256.ToHex();
    return MakeError(
        absl::StatusCode::kDataLoss, Reason::kWeightHash,
        absl::StrCat("tensor '", name, "': the loaded weights have SHA-256 ", found.ToHex(),
                     ", the deployment's manifest has ", wanted,
                     "; give this worker the checkpoint that the deployment was applied with"),
        {{"tensor", name},
         {"layer", absl::StrCat(layer.value)},
         {"expert", absl::StrCat(expert.value)},
         {"found", found.ToHex()},
         {"expected", wanted}});
  }
  return absl::OkStatus();
}

}  // namespace switchyard
