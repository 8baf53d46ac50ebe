#include "tests/sim/hash_experts.h"

#include <array>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/rng.h"
#include "worker/device/cpu/codec/codec_bf16.h"
#include "worker/device/cpu/codec/codec_scaled.h"

namespace switchyard::sim {
namespace {

std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  return SplitMix64(hash + value + kSplitMix64Step);
}

}  // namespace

ExpertWeights WeightsOf(const MoeShape& shape, std::uint64_t version, LayerId layer,
                        ExpertId expert) {
  std::uint64_t state = Mix(Mix(version, static_cast<std::uint64_t>(layer.value)),
                            static_cast<std::uint64_t>(expert.value));
  ExpertWeights weights;
  for (const Projection projection : kAllProjections) {
    std::vector<Bf16>& tensor = weights.of(projection);
    tensor.resize(static_cast<std::size_t>(shape.hidden) *
                  static_cast<std::size_t>(shape.intermediate));
    for (Bf16& value : tensor) value = static_cast<Bf16>(state = Mix(state, 1));
  }
  return weights;
}

QuantScheme SchemeOfVersion(std::uint64_t version) {
  return version % 2 == 0 ? QuantScheme::kNone : QuantScheme::kW8A8Int8;
}

ModelFacts HashFacts(const testing::FactsShape& shape) {
  ModelFacts facts = testing::MakeFacts(shape);
  for (LayerStorage& layer : facts.storage) layer.scheme = SchemeOfVersion(shape.weights);
  for (TensorHash& row : facts.manifest.tensors) {
    row.sha256 =
        Sha256(WeightsOf(facts.shape, shape.weights, row.layer, row.expert).bytes(row.projection));
  }
  return facts;
}

void AppendRow(Rng& rng, std::int32_t hidden, std::vector<Bf16>* x) {
  constexpr int kLargest = 127;
  constexpr std::array kUnits{0.25F, 1.0F, 8.0F};
  const float unit = kUnits[rng.Below(kUnits.size())];
  const std::size_t begin = x->size();
  for (std::int32_t i = 0; i < hidden; ++i) {
    const auto value = static_cast<int>(rng.Below(2 * kLargest + 1)) - kLargest;
    x->push_back(FloatToBf16(static_cast<float>(value) * unit));
  }
  (*x)[begin + rng.Below(static_cast<std::uint64_t>(hidden))] = FloatToBf16(kLargest * unit);
}

std::uint64_t DigestOf(const ExpertWeightsView& weights) {
  std::uint64_t digest = 0;
  for (const std::span<const Bf16> tensor : {weights.gate, weights.up, weights.down}) {
    for (const Bf16 value : tensor) digest = Mix(digest, value);
  }
  return digest;
}

void HashRow(std::uint64_t digest, Epoch epoch, std::span<const Bf16> x, float* out) {
  std::uint64_t hash = Mix(digest, epoch.value);
  for (const Bf16 value : x) hash = Mix(hash, value);
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = static_cast<float>(Mix(hash, i) & 63U);
  }
}

HashDevice::HashDevice() : HostDevice({.every_run = true}) {
  capabilities_.kernel_family = "hash";
  capabilities_.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kInt8};
  capabilities_.schemes = {QuantScheme::kNone, QuantScheme::kW8A8Int8};
}

absl::StatusOr<std::unique_ptr<PackedExpert>> HashDevice::Pack(const MoeShape& shape,
                                                               const ExpertWeightsView& weights) {
  return std::make_unique<HashExpert>(shape.hidden, DigestOf(weights), Epoch{});
}

absl::StatusOr<std::unique_ptr<KernelScratch>> HashDevice::MakeScratch(const MoeShape& /*shape*/) {
  return std::make_unique<KernelScratch>();
}

void HashDevice::RunExperts(std::span<const ExpertRows> batches, KernelScratch& /*scratch*/) {
  for (const ExpertRows& batch : batches) {
    const auto& expert = static_cast<const HashExpert&>(*batch.expert);
    float* out = batch.out;
    for (const Bf16* row : batch.rows) {
      expert.Answer(row, out);
      out += expert.hidden();
    }
  }
}

absl::StatusOr<std::unique_ptr<Codec>> HashDevice::MakeCodec(const CodecSpec& spec) const {
  if (spec.format == kBf16Format) return std::make_unique<Bf16Codec>();
  if (spec.format == kInt8Format) return ScaledCodec::Create(kScalarCodecKernels, spec);
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "the simulated device has BF16 and INT8 alone");
}

HashSource::HashSource(const MoeShape& shape, std::uint64_t version, WeightCheck check,
                       bool bit_flips)
    : shape_(shape), version_(version), check_(std::move(check)), bit_flips_(bit_flips) {
  config_.model_type = "synthetic";
}

absl::StatusOr<ExpertWeights> HashSource::Load(LayerId layer, ExpertId expert) {
  ExpertWeights weights = WeightsOf(shape_, version_, layer, expert);
  if (std::exchange(bit_flips_, false)) weights.up[1] ^= 4;
  return Verified(check_, config_, layer, expert, std::move(weights));
}

}  // namespace switchyard::sim
