// Experts in the memory of a CUDA device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/device/cuda/backend/cuda_memory.h"
#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/steps/expert_facts.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class CudaPackedExpert final : public PackedExpert {
 public:
  // `facts` point into `memory`.
  CudaPackedExpert(const MoeShape& shape, CudaMemory memory, const cuda::ExpertFacts& facts)
      : hidden_(shape.hidden),
        intermediate_(shape.intermediate),
        memory_(std::move(memory)),
        facts_(facts) {}

  [[nodiscard]] std::int64_t bytes() const override { return memory_.bytes(); }
  [[nodiscard]] const cuda::ExpertFacts& facts() const { return facts_; }
  [[nodiscard]] bool Fits(const MoeShape& shape) const {
    return hidden_ == shape.hidden && intermediate_ == shape.intermediate;
  }

 private:
  const std::int64_t hidden_;
  const std::int64_t intermediate_;
  const CudaMemory memory_;
  const cuda::ExpertFacts facts_;
};

// The two products of an expert.
enum class Matrix : std::uint8_t { kGateUp = 0, kDown = 1 };

class CudaTable final : public ExpertTable {
 public:
  // Copies the facts to the device and waits. Errors: kInvalidArgument (BAD_SHAPE) for more experts
  // than the kernels take; those of memory.
  static absl::StatusOr<std::unique_ptr<CudaTable>> Create(std::vector<TableEntry> entries,
                                                           CudaFault& fault);

  [[nodiscard]] std::int32_t slots() const override {
    return static_cast<std::int32_t>(entries_.size());
  }
  [[nodiscard]] const TableEntry& entry(std::size_t slot) const { return entries_[slot]; }
  [[nodiscard]] const CudaPackedExpert& expert(std::size_t slot) const {
    return static_cast<const CudaPackedExpert&>(*entries_[slot].weights);
  }
  // In device memory, by slot.
  [[nodiscard]] const cuda::ExpertFacts* facts() const { return facts_; }
  // The weights of a route of grouped_gemm.h, without n and k. Slots of other routes show the
  // weights of one of this route, since kernels fetch before they know the counts.
  [[nodiscard]] cuda::PackedWeights Weights(cuda::Route route, Matrix matrix) const;
  // Whether the epilogue of a product of prefill makes h of the sums of every expert of this route:
  // nothing finishes the sums, and h is rounded as the epilogue rounds.
  [[nodiscard]] bool MakesHidden(cuda::Route route) const {
    return makes_hidden_[static_cast<std::size_t>(route)];
  }
  // The route of all experts, if they read rows as they travel in FP8 or BF16 and nothing but the
  // epilogues of products of prefill makes h and answers of the sums.
  [[nodiscard]] std::optional<cuda::Route> landed_route() const { return landed_route_; }

 private:
  // [slots] each, in device memory.
  struct Pointers {
    const std::byte* const* weights = nullptr;
    const float* const* scales = nullptr;
  };

  explicit CudaTable(std::vector<TableEntry> entries) : entries_(std::move(entries)) {}

  std::vector<TableEntry> entries_;
  CudaMemory memory_;
  const cuda::ExpertFacts* facts_ = nullptr;
  // By route, of which only those of grouped_gemm.h have some, and by Matrix.
  std::array<std::array<Pointers, 2>, cuda::kRoutes> pointers_{};
  std::array<bool, cuda::kRoutes> makes_hidden_{};
  std::optional<cuda::Route> landed_route_;
};

}  // namespace switchyard
