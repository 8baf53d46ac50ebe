// Experts whose answer to a row is a hash: of their weights, of the epoch that they serve under and
// of the row. A row that is wrong, lost, doubled or stale changes the sum.
//
// Answers are integers from 0 to 63. With a top-k of 2 and weights of 1 or 2 every sum is an
// integer of at most 252, which BF16 and FP32 hold exactly in any order of summation, so the sum
// that a source must get is computed without the code under test.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/spec/deployment.h"
#include "core/rng.h"
#include "model/expert_weights.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/model_facts.h"
#include "worker/device/host/host_device.h"
#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard::sim {

// The weights of an expert in one version of a checkpoint.
ExpertWeights WeightsOf(const MoeShape& shape, std::uint64_t version, LayerId layer,
                        ExpertId expert);
// Of INT8 experts rows may be INT8 on the wire.
QuantScheme SchemeOfVersion(std::uint64_t version);
// What the checkpoint holds in that version.
ModelFacts HashFacts(const testing::FactsShape& shape);
std::uint64_t DigestOf(const ExpertWeightsView& weights);
// Appends a row that INT8 holds as exactly as BF16 does: integers with the largest one among them,
// in units of a power of two. So it arrives as it is, whatever the wire dtype.
void AppendRow(Rng& rng, std::int32_t hidden, std::vector<Bf16>* x);

// What an expert answers to `x` under `epoch`.
void HashRow(std::uint64_t digest, Epoch epoch, std::span<const Bf16> x, float* out);

class HashExpert final : public PackedExpert {
 public:
  HashExpert(std::int32_t hidden, std::uint64_t digest, Epoch epoch)
      : hidden_(hidden), digest_(digest), epoch_(epoch) {}
  [[nodiscard]] std::int64_t bytes() const override { return 1; }
  // The same weights, serving under that epoch.
  [[nodiscard]] std::shared_ptr<const PackedExpert> Under(Epoch epoch) const {
    return std::make_shared<HashExpert>(hidden_, digest_, epoch);
  }
  void Answer(const Bf16* x, float* out) const {
    HashRow(digest_, epoch_, {x, static_cast<std::size_t>(hidden_)}, out);
  }
  [[nodiscard]] std::int32_t hidden() const { return hidden_; }

 private:
  std::int32_t hidden_;
  std::uint64_t digest_;
  Epoch epoch_;
};

class HashDevice final : public HostDevice {
 public:
  HashDevice();
  [[nodiscard]] const CapabilitySet& capabilities() const override { return capabilities_; }
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override;
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(
      const CodecSpec& spec) const override;

 private:
  absl::StatusOr<std::unique_ptr<KernelScratch>> MakeScratch(const MoeShape& shape) override;
  void RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) override;
  [[nodiscard]] const RowOps& row_ops() const override { return row_ops_; }

  CapabilitySet capabilities_;
  testing::FakeRowOps row_ops_;
};

// A checkpoint in one version, of which one bit may be wrong.
class HashSource final : public WeightSource {
 public:
  // `bit_flips`: the first tensor that is loaded has a bit other than the checkpoint's.
  HashSource(const MoeShape& shape, std::uint64_t version, WeightCheck check, bool bit_flips);
  absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) override;
  [[nodiscard]] QuantScheme SchemeOf(LayerId) const override { return SchemeOfVersion(version_); }
  [[nodiscard]] MoeShape shape() const override { return shape_; }
  [[nodiscard]] std::string describe() const override { return "a simulated checkpoint"; }

 private:
  MoeShape shape_;
  std::uint64_t version_;
  WeightCheck check_;
  ModelConfig config_;
  bool bit_flips_;
};

}  // namespace switchyard::sim
