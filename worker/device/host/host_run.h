// Runs an ExpertRun in host memory: decodes rows, groups them by expert so that each expert's
// weights are read once, runs the kernels and combines.
//
// A run whose (row, expert) pairs do not fit the workspace goes in several passes of whole rows.
// The answer to a row depends on the row and the weights only, so any cut gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "worker/device/device_backend.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/host/host_kernels.h"

namespace switchyard {

class HostTable final : public ExpertTable {
 public:
  explicit HostTable(std::vector<TableEntry> entries) : entries_(std::move(entries)) {
    for (const TableEntry& entry : entries_) bytes_ += entry.weights->bytes();
  }
  [[nodiscard]] std::int32_t slots() const override {
    return static_cast<std::int32_t>(entries_.size());
  }
  [[nodiscard]] const TableEntry& entry(std::size_t slot) const { return entries_[slot]; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  // of all its experts

 private:
  std::vector<TableEntry> entries_;
  std::int64_t bytes_ = 0;
};

class HostWorkspace final : public Workspace {
 public:
  // Errors: kInvalidArgument (BAD_CONFIG) when pairs_max is below the top-k; those of MakeScratch;
  // kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<std::unique_ptr<HostWorkspace>> Create(HostKernels* kernels,
                                                               const MoeShape& shape,
                                                               std::int64_t pairs_max);
  [[nodiscard]] const MoeShape& shape() const { return shape_; }

 private:
  friend class HostRun;
  HostWorkspace(const MoeShape& shape, std::int64_t pairs_max);

  const MoeShape shape_;
  const std::int64_t pairs_max_;
  std::unique_ptr<KernelScratch> scratch_;
  std::vector<std::int32_t> slot_of_pair_;     // [pairs_max]
  std::vector<const Bf16*> row_of_pair_;       // [pairs_max]
  std::vector<std::uint8_t> rounded_;          // [pairs_max] of row_of_pair_
  std::vector<std::uint32_t> place_of_pair_;   // [pairs_max] row in y_
  std::vector<std::uint32_t> slot_begin_;      // [experts + 1]
  std::vector<const Bf16*> grouped_rows_;      // [pairs_max], by slot
  std::vector<std::uint8_t> grouped_rounded_;  // [pairs_max], by slot
  std::vector<ExpertRows> batches_;            // [experts]
  AlignedBuffer y_memory_;                     // huge pages: a pass walks all of it, row by row
  float* y_ = nullptr;                         // [pairs_max, hidden]
  std::vector<const float*> terms_;            // [top_k]
  std::vector<float> factors_;                 // [top_k]
};

// One run. Lives on the stack of the thread that computes; allocates nothing.
class HostRun {
 public:
  HostRun(const ExpertRun& run, HostKernels* kernels);

  // `between` is called between two passes, and between experts where a pass is long: other work
  // may run there, with workspaces of its own.
  void Execute(absl::FunctionRef<void()> between);

 private:
  // The next row to take: of which input, and which of its rows.
  struct Cursor {
    std::size_t input = 0;
    std::uint32_t row = 0;
  };

  void Decode(const ExpertInput& input) const;
  [[nodiscard]] std::int64_t PairsOfPass() const;
  Cursor Gather(Cursor from);
  bool GatherRow(const ExpertInput& input, std::uint32_t row);
  void RunGathered(absl::FunctionRef<void()> between);
  void RunInPieces(absl::FunctionRef<void()> between);
  void Combine(const Cursor& from, const Cursor& to);
  void AnswerRow(ExpertInput& input, std::uint32_t row, std::size_t* pair);
  [[nodiscard]] const Bf16* RowOf(const ExpertInput& input, std::uint32_t row) const;

  const ExpertRun& run_;
  HostKernels* kernels_;
  const HostTable& table_;
  HostWorkspace& space_;
  const std::int64_t hidden_;
  std::int64_t pairs_of_pass_ = 0;  // most pairs of a pass of this run
  std::size_t pairs_ = 0;           // of the pass that is being gathered
};

}  // namespace switchyard
