// A device of obvious scalar loops, so that tests of what surrounds a device need no kernel. It
// counts its runs. Run allocates nothing.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

#include "core/base/error.h"
#include "core/format/bf16.h"
#include "worker/device/host/host_device.h"

namespace switchyard::testing {

class FakeExpert : public PackedExpert {
 public:
  FakeExpert(const MoeShape& made_for, const ExpertWeightsView& weights)
      : shape(made_for),
        gate(weights.gate.begin(), weights.gate.end()),
        up(weights.up.begin(), weights.up.end()),
        down(weights.down.begin(), weights.down.end()) {}
  [[nodiscard]] std::int64_t bytes() const override {
    return static_cast<std::int64_t>((gate.size() + up.size() + down.size()) * sizeof(Bf16));
  }

  MoeShape shape;
  std::vector<Bf16> gate, up, down;
};

class FakeScratch final : public KernelScratch {
 public:
  explicit FakeScratch(const MoeShape& made_for)
      : h(static_cast<std::size_t>(made_for.intermediate)) {}
  std::vector<float> h;
};

class FakeRowOps final : public RowOps {
 public:
  void WeightedSum(std::span<const float* const> rows, std::span<const float> weights,
                   std::int64_t hidden, Bf16* out) const override {
    for (std::int64_t i = 0; i < hidden; ++i) {
      float sum = 0.0F;
      for (std::size_t r = 0; r < rows.size(); ++r) sum = std::fma(weights[r], rows[r][i], sum);
      out[i] = FloatToBf16(sum);
    }
  }
  void WeightedSumBf16(std::span<const Bf16* const> rows, std::span<const float> weights,
                       std::int64_t hidden, float* out) const override {
    for (std::int64_t i = 0; i < hidden; ++i) {
      out[i] = 0.0F;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        out[i] = std::fma(weights[r], Bf16ToFloat(rows[r][i]), out[i]);
      }
    }
  }
  void SumBf16(std::span<const Bf16* const> rows, std::int64_t hidden, float* out) const override {
    for (std::int64_t i = 0; i < hidden; ++i) {
      out[i] = 0.0F;
      for (const Bf16* row : rows) out[i] += Bf16ToFloat(row[i]);
    }
  }
  void RoundToBf16(const float* in, std::int64_t count, Bf16* out) const override {
    for (std::int64_t i = 0; i < count; ++i) out[i] = FloatToBf16(in[i]);
  }
};

// Runs every batch inside the call that enqueues it, unless it is made with other limits.
class FakeDevice final : public HostDevice {
 public:
  explicit FakeDevice(InlineLimits limits = {.every_run = true}) : HostDevice(limits) {
    capabilities_.kernel_family = "fake";
    capabilities_.wire_dtypes = {DispatchDtype::kBf16};
    capabilities_.schemes = {QuantScheme::kNone};
  }

  [[nodiscard]] const CapabilitySet& capabilities() const override { return capabilities_; }
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& weights) override {
    const int pack = ++packs;
    if (fail_packs_after >= 0 && pack > fail_packs_after) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "fake is full");
    }
    return std::make_unique<FakeExpert>(shape, weights);
  }
  absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                           std::int64_t pairs_max) override {
    if (workspace_pairs_limit > 0 && pairs_max > workspace_pairs_limit) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "fake is full");
    }
    workspace_pairs_max = pairs_max;
    return HostDevice::MakeWorkspace(shape, pairs_max);
  }
  [[nodiscard]] BatchSize PrefillBatch(const MoeShape&, const BatchSize& usual) const override {
    return prefill_batch.value_or(usual);
  }
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec&) const override {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported, "fake has no codec");
  }

  // y = down(silu(gate(x)) * up(x)) of one row, in the order in which Run computes it.
  static void RunRow(const FakeExpert& expert, const Bf16* x, std::span<float> h, float* y) {
    const auto hidden = static_cast<std::size_t>(expert.shape.hidden);
    const auto inner = static_cast<std::size_t>(expert.shape.intermediate);
    for (std::size_t i = 0; i < inner; ++i) {
      float gate = 0.0F;
      float up = 0.0F;
      for (std::size_t j = 0; j < hidden; ++j) {
        gate += Bf16ToFloat(expert.gate[i * hidden + j]) * Bf16ToFloat(x[j]);
        up += Bf16ToFloat(expert.up[i * hidden + j]) * Bf16ToFloat(x[j]);
      }
      h[i] = gate / (1.0F + std::exp(-gate)) * up;
    }
    for (std::size_t j = 0; j < hidden; ++j) {
      y[j] = 0.0F;
      for (std::size_t i = 0; i < inner; ++i)
        y[j] += Bf16ToFloat(expert.down[j * inner + i]) * h[i];
    }
  }

  std::function<void()> on_run;  // called at the beginning of each Run
  std::atomic<int> packs = 0;
  int fail_packs_after = -1;  // -1: never
  int runs = 0;
  std::int64_t rows_run = 0;
  std::int64_t workspace_pairs_max = 0;    // of the last workspace
  std::int64_t workspace_pairs_limit = 0;  // larger ones are refused; 0: none is
  std::optional<BatchSize> prefill_batch;  // unset: as usual
  int overfull_runs = 0;                   // runs with more rows than that

 private:
  absl::StatusOr<std::unique_ptr<KernelScratch>> MakeScratch(const MoeShape& shape) override {
    return std::make_unique<FakeScratch>(shape);
  }
  void RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) override {
    RunExpertsUntil(batches, scratch, [] { return false; });
  }
  std::size_t RunExpertsUntil(std::span<const ExpertRows> batches, KernelScratch& scratch,
                              absl::FunctionRef<bool()> stop) override {
    if (on_run) on_run();
    auto& space = static_cast<FakeScratch&>(scratch);
    std::int64_t rows = 0;
    std::size_t count = 0;
    for (const ExpertRows& batch : batches) {
      rows += static_cast<std::int64_t>(batch.rows.size());
      const auto& expert = static_cast<const FakeExpert&>(*batch.expert);
      for (std::size_t r = 0; r < batch.rows.size(); ++r) {
        RunRow(expert, batch.rows[r], space.h,
               batch.out + r * static_cast<std::size_t>(expert.shape.hidden));
      }
      ++count;
      if (stop()) break;
    }
    ++runs;
    rows_run += rows;
    if (rows > workspace_pairs_max) overfull_runs += 1;
    return count;
  }
  [[nodiscard]] const RowOps& row_ops() const override { return row_ops_; }

  CapabilitySet capabilities_;
  FakeRowOps row_ops_;
};

}  // namespace switchyard::testing
