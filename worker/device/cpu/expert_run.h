// Walks the rows of one expert through a kernel family, block by block, on the calling thread.
#pragma once

#include <span>

#include "worker/device/cpu/kernel_family.h"

namespace switchyard {

struct ExpertRun {
  const KernelFamily* family = nullptr;
  KernelLayout layout;  // family's, for dims
  KernelDims dims;
  const std::byte* weights = nullptr;  // packed by the family
  std::span<const Bf16* const> rows;
  float* out = nullptr;
  std::byte* scratch = nullptr;  // layout.scratch_bytes, 64-byte aligned
};

// The call for the rows from `first` on: rows_per_call of them, or what is left.
KernelCall CallAt(const ExpertRun& run, std::int64_t first);
// out = down(silu(gate) * up) for every row.
void RunExpert(const ExpertRun& run);

}  // namespace switchyard
