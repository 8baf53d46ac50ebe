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

#include "absl/status/statusor.h"

#include "worker/device/device_backend.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/host/host_kernels.h"
#include "worker/device/host/other_work.h"

namespace switchyard {

// A vector is table enough: kernels are called with the expert itself.
class HostTable final : public ExpertTable {
 public:
  explicit HostTable(std::vector<TableEntry> entries) : entries_(std::move(entries)) {
    for (const TableEntry& entry : entries_) bytes_ += entry.weights->bytes();
  }
  [[nodiscard]] std::int32_t slots() const override {
    return static_cast<std::int32_t>(entries_.size());
  }
  // REQUIRES: `slot` < slots(). The expert service checks the slots of every request.
  [[nodiscard]] const TableEntry& entry(std::size_t slot) const { return entries_[slot]; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  // of all its experts

 private:
  std::vector<TableEntry> entries_;
  std::int64_t bytes_ = 0;
};

// The lists of one pass, allocated once so that a run allocates nothing.
class HostWorkspace final : public Workspace {
 public:
  // Errors: kInvalidArgument (BAD_CONFIG) when pairs_max is below the top-k; those of MakeScratch;
  // kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<std::unique_ptr<HostWorkspace>> Create(HostKernels* kernels,
                                                               const MoeShape& shape,
                                                               std::int64_t pairs_max);
  // The shape that runs are checked against.
  [[nodiscard]] const MoeShape& shape() const { return shape_; }

 private:
  friend class HostRun;
  HostWorkspace(const MoeShape& shape, std::int64_t pairs_max);

  const MoeShape shape_;
  const std::int64_t pairs_max_;
  std::unique_ptr<KernelScratch> scratch_;
  // In the order of Gather: rows as they come, and within a row the slots as they are given.
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
  // Both outlive the object. REQUIRES: the run's experts and workspace are of this device's making,
  // and its slots are below the table's.
  HostRun(const ExpertRun& run, HostKernels* kernels);

  // `others` run between two passes, and between experts where a pass is long, with workspaces of
  // their own.
  void Execute(const OtherWork& others);

 private:
  // The next row to take: of which input, and which of its rows.
  struct Cursor {
    std::size_t input = 0;
    std::uint32_t row = 0;
  };

  // Into the input's own `out`, where no answer arrives before its row has been read.
  void Decode(const ExpertInput& input) const;
  // At most the workspace's; fewer when the experts' rows then stay in the cache until they are
  // summed.
  [[nodiscard]] std::int64_t PairsOfPass() const;
  // Takes whole rows until the pass is full; returns the first row of the next pass.
  Cursor Gather(Cursor from);
  // False: the row does not fit into this pass.
  bool GatherRow(const ExpertInput& input, std::uint32_t row);
  // Sorts the pairs by slot and runs each expert once over its rows.
  void RunGathered(const OtherWork& others);
  // A pass gives way between experts: at prefill sizes it may take longer than a decode step may
  // wait.
  void RunExperts(const OtherWork& others);
  // Writes the answers of the rows [from, to) from the experts' rows, slots in the order given.
  void Combine(const Cursor& from, const Cursor& to);
  void AnswerRow(ExpertInput& input, std::uint32_t row, std::size_t* pair);
  // The row as BF16, where it lies or where Decode has put it.
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
