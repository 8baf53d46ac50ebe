#include "worker/device/cuda/backend/cuda_experts.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

using cuda::ExpertFacts;
using cuda::MatrixFacts;
using cuda::Route;

const MatrixFacts& MatrixOf(const ExpertFacts& facts, std::size_t matrix) {
  return matrix == 0 ? facts.gate_up : facts.down;
}

bool IsPlain(const ExpertFacts& facts) {
  return facts.route != Route::kInt8 && facts.gate_up.output_scales == nullptr &&
         facts.gate_up.biases == nullptr &&
         facts.middle.format ==
             (facts.route == Route::kFp8 ? cuda::Rounding::kFp8Group : cuda::Rounding::kBf16);
}

// The rows of FP8 are taken as they are, whatever the expert would round others to.
bool TakesLandedRows(const ExpertFacts& facts) {
  const bool reads = facts.route == Route::kFp8 ||
                     (facts.route == Route::kBf16 && facts.inputs.format == cuda::Rounding::kBf16);
  return reads && IsPlain(facts) && facts.down.output_scales == nullptr &&
         facts.down.biases == nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaTable>> CudaTable::Create(std::vector<TableEntry> entries,
                                                             CudaFault& fault) {
  if (entries.size() > cuda::kGroupsMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     absl::StrCat("a table of ", entries.size(), " experts; a CUDA device takes ",
                                  cuda::kGroupsMax, " a layer: place some elsewhere"));
  }
  std::unique_ptr<CudaTable> table(new CudaTable(std::move(entries)));
  const std::size_t slots = table->entries_.size();
  const std::size_t facts_bytes = slots * sizeof(ExpertFacts);
  const std::size_t pointers = slots * sizeof(void*);
  std::vector<std::byte> image(facts_bytes + 4 * std::size(cuda::kGroupedRoutes) * pointers);
  SY_ASSIGN_OR_RETURN(table->memory_, CudaMemory::OnDevice(static_cast<std::int64_t>(image.size()),
                                                           fault, "a table of experts"));
  std::byte* const base = table->memory_.data();
  table->facts_ = reinterpret_cast<const ExpertFacts*>(base);
  for (std::size_t s = 0; s < slots; ++s) {
    std::memcpy(image.data() + s * sizeof(ExpertFacts), &table->expert(s).facts(),
                sizeof(ExpertFacts));
  }
  for (const auto& [route, type] : cuda::kGroupedRoutes) {
    table->makes_hidden_[static_cast<std::size_t>(route)] = std::all_of(
        table->entries_.begin(), table->entries_.end(), [of = route](const TableEntry& e) {
          const ExpertFacts& facts = static_cast<const CudaPackedExpert&>(*e.weights).facts();
          return facts.route != of || IsPlain(facts);
        });
  }
  if (slots > 0) {
    const Route first = table->expert(0).facts().route;
    const bool all =
        std::all_of(table->entries_.begin(), table->entries_.end(), [first](const TableEntry& e) {
          const ExpertFacts& facts = static_cast<const CudaPackedExpert&>(*e.weights).facts();
          return facts.route == first && TakesLandedRows(facts);
        });
    if (all) table->landed_route_ = first;
  }
  std::size_t at = facts_bytes;
  for (const auto& [route, type] : cuda::kGroupedRoutes) {
    const auto is_of_route = [&, of = route](std::size_t slot) {
      return table->expert(slot).facts().route == of;
    };
    std::size_t first = 0;
    while (first < slots && !is_of_route(first)) ++first;
    for (std::size_t m = 0; m < 2; ++m) {
      Pointers& of = table->pointers_[static_cast<std::size_t>(route)][m];
      of.weights = reinterpret_cast<const std::byte* const*>(base + at);
      of.scales = reinterpret_cast<const float* const*>(base + at + pointers);
      for (std::size_t s = 0; s < slots && first < slots; ++s) {
        const MatrixFacts& matrix = MatrixOf(table->expert(is_of_route(s) ? s : first).facts(), m);
        std::memcpy(image.data() + at + s * sizeof(void*), &matrix.weights, sizeof(void*));
        std::memcpy(image.data() + at + pointers + s * sizeof(void*), &matrix.scales,
                    sizeof(void*));
      }
      at += 2 * pointers;
    }
  }
  SY_RETURN_IF_ERROR(
      fault.Check(cudaMemcpy(base, image.data(), image.size(), cudaMemcpyHostToDevice),
                  "copying a table of experts"));
  return table;
}

cuda::PackedWeights CudaTable::Weights(Route route, Matrix matrix) const {
  const Pointers& of = pointers_[static_cast<std::size_t>(route)][static_cast<std::size_t>(matrix)];
  cuda::PackedWeights weights;
  weights.of_group = of.weights;
  weights.scales_of_group = of.scales;
  weights.type = FindGrouped(route)->type;
  weights.order = cuda::WeightOrder::kRows128;
  return weights;
}

}  // namespace switchyard
