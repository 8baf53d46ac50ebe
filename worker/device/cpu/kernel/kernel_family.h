// One kernel family: plain data and functions, so that a source file compiled for a newer
// instruction set shares no inline code with the rest of the program.
//
// A family owns the layout of its packed weights and of its scratch. Work on an expert is cut into
// column panels that any thread may compute in any order: a panel is one sequence of operations
// along K whatever the rows around it, hence bit-equality (docs/INVARIANTS.md).
//
// Rounding: amx_bf16 rounds h = silu(gate) * up to BF16, because its second product takes BF16;
// avx512, avx2 and portable_fp32 keep h in FP32; scalar sums and keeps h in double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/format/bf16.h"
#include "worker/device/cpu/machine/cpuid.h"

namespace switchyard {

// The sizes of one expert, all above zero.
struct KernelDims {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};

// A family's demands for experts of some dims.
struct KernelLayout {
  std::int64_t packed_bytes = 0;
  std::int64_t scratch_bytes = 0;  // for one call of `rows_per_call` rows
  std::int64_t rows_per_call = 0;  // most rows of one KernelCall
  std::int64_t gate_up_panels = 0;
  std::int64_t down_panels = 0;
};

// The factors that finish a projection's sums: sum * scale + bias. Weights are packed without the
// scales of their outputs and of the whole tensor, so that they stay exact in BF16. Padded with
// zeros to whole lines of 16 values; 64-byte aligned.
struct KernelAffine {
  const float* gate_scale = nullptr;  // [intermediate]
  const float* up_scale = nullptr;    // [intermediate]
  const float* down_scale = nullptr;  // [hidden]
  const float* gate_bias = nullptr;   // [intermediate]
  const float* up_bias = nullptr;     // [intermediate]
  const float* down_bias = nullptr;   // [hidden]
};

// Scales of one projection along k: each 128 of k is summed by itself, and the sums, each times its
// scale, are added in the order of k. One path for both widths:
//   1   128 outputs share a scale: [ceil(outputs / 128), ceil(k / 128)]
//   16  each output has its own: [ceil(outputs / 32) * 2, ceil(k / 128), 16], zeros for outputs
//       beyond the matrix, so that there is a line for each half of every panel
// 64-byte aligned. Null: all k is one sum.
struct KernelScales {
  const float* at = nullptr;
  std::int64_t width = 1;
};
struct KernelBlockScales {
  KernelScales gate;
  KernelScales up;  // null where gate's is
  KernelScales down;
};

// Up to rows_per_call rows of one expert. Scratch carries the rows and then h between the steps.
struct KernelCall {
  KernelDims dims;
  const std::byte* weights = nullptr;    // packed; 64-byte aligned
  const Bf16* const* rows = nullptr;     // [row_count], each [hidden], 2-byte aligned
  std::int64_t row_count = 0;            // > 0
  float* out = nullptr;                  // [row_count, hidden], 4-byte aligned
  std::byte* scratch = nullptr;          // 64-byte aligned
  const KernelAffine* affine = nullptr;  // null: sums are used as they are
  KernelBlockScales blocks;
};

// The checkpoint's row-major weights, as in ExpertWeightsView.
struct KernelWeights {
  const Bf16* gate = nullptr;
  const Bf16* up = nullptr;
  const Bf16* down = nullptr;
};

// The functions of a family. All are pure but for their outputs, allocate nothing and may run on
// several threads with different scratch.
struct KernelFamily {
  const char* name;
  bool (*usable)(const CpuFeatures& cpu);
  KernelLayout (*layout)(const KernelDims& dims);
  // Fills all packed_bytes of `out`, padding included.
  void (*pack)(const KernelDims& dims, const KernelWeights& weights, std::byte* out);
  // The three steps of a call: rows to scratch; gate and up panels [begin, end) to h in scratch;
  // down panels [begin, end) to out, without down's scale and bias (ApplyDownAffine adds them).
  // Each needs the one before it complete.
  void (*load_rows)(const KernelCall& call);
  void (*gate_up)(const KernelCall& call, std::int64_t begin, std::int64_t end);
  void (*down)(const KernelCall& call, std::int64_t begin, std::int64_t end);
  // Between gate_up and down: row `row` of h rounded to BF16, [intermediate], out and back in.
  void (*load_h)(const KernelCall& call, std::int64_t row, Bf16* out);
  void (*store_h)(const KernelCall& call, std::int64_t row, const Bf16* h);
};

}  // namespace switchyard
