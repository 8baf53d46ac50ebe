// Walks the rows of one expert through a kernel family, block by block, on the calling thread.
//
// Around the family's three steps stands what a quant scheme adds: rows and h are rounded as its
// kernels would read them, and scales of outputs and biases finish the sums.
#pragma once

#include <span>

#include "worker/device/cpu/codec/activation_rounding.h"
#include "worker/device/cpu/kernel/kernel_family.h"
#include "worker/device/host/host_kernels.h"

namespace switchyard {

// The rows of one expert and all that is needed to compute them. Borrows everything.
struct KernelRun {
  const KernelFamily* family = nullptr;
  KernelLayout layout;  // family's, for dims
  KernelDims dims;
  const std::byte* weights = nullptr;      // packed by the family
  const KernelAffine* affine = nullptr;    // null: none
  KernelBlockScales blocks{};              // null: none
  ActivationSpec inputs{};                 // of gate and up
  ActivationSpec middle{};                 // of down
  const CodecKernels* rounding = nullptr;  // not null when one of them is not kBf16
  ExpertAmax* amax = nullptr;              // null: not recorded
  const std::uint8_t* rounded = nullptr;   // [rows], as ExpertRows::rounded
  std::span<const Bf16* const> rows;
  float* out = nullptr;
  std::byte* scratch = nullptr;  // ScratchBytes, 64-byte aligned
};

// The scratch that a thread needs for experts of these dims, whatever their scheme: the family's
// own, and room for rounded rows.
std::int64_t ScratchBytes(const KernelLayout& layout, const KernelDims& dims);

// One block of rows on its way; steps in the order of their declaration.
class ExpertCall {
 public:
  // For the rows from `first` on: as many as fit a call, or what is left.
  ExpertCall(const KernelRun& run, std::int64_t first);

  // Brings rows into the family's layout, rounded as the scheme says.
  void LoadRows();
  void GateUp(std::int64_t begin, std::int64_t end) { run_.family->gate_up(call_, begin, end); }
  // Rounds h. Between all panels of GateUp and the first of Down, because a scale needs the whole
  // row.
  void RoundMiddle();
  void Down(std::int64_t begin, std::int64_t end) { run_.family->down(call_, begin, end); }
  // Adds down's scales and biases to the sums in `out`.
  void Finish();

  [[nodiscard]] std::int64_t row_count() const { return call_.row_count; }

 private:
  // Outlives the call.
  const KernelRun& run_;
  const std::uint8_t* rounded_ = nullptr;  // of the rows of this call
  KernelCall call_;
};

// out = down(silu(gate) * up) for every row, in blocks of rows_per_call. Allocates nothing.
void RunExpert(const KernelRun& run);

}  // namespace switchyard
