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

// Of a thread that runs experts of these dims, whatever their scheme.
std::int64_t ScratchBytes(const KernelLayout& layout, const KernelDims& dims);

// One block of rows on its way; steps in the order of their declaration.
class ExpertCall {
 public:
  // For the rows from `first` on: as many as fit a call, or what is left.
  ExpertCall(const KernelRun& run, std::int64_t first);

  void LoadRows();
  void GateUp(std::int64_t begin, std::int64_t end) { run_.family->gate_up(call_, begin, end); }
  void RoundMiddle();
  void Down(std::int64_t begin, std::int64_t end) { run_.family->down(call_, begin, end); }
  void Finish();

  [[nodiscard]] std::int64_t row_count() const { return call_.row_count; }

 private:
  const KernelRun& run_;
  const std::uint8_t* rounded_ = nullptr;  // of the rows of this call
  KernelCall call_;
};

// out = down(silu(gate) * up) for every row.
void RunExpert(const KernelRun& run);

}  // namespace switchyard
