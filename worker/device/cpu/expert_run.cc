#include "worker/device/cpu/expert_run.h"

#include <algorithm>

#include "worker/device/cpu/kernel/packing.h"

namespace switchyard {
namespace {

// Rounded rows are copies, so fewer of them go at once.
constexpr std::int64_t kRoundedRowsMax = 64;

// Behind the family's scratch: pointers to the rounded rows, the rows, a row of h, and what a
// codec needs.
struct Extra {
  const Bf16** pointers = nullptr;
  Bf16* rows = nullptr;
  Bf16* h = nullptr;
  std::byte* codec = nullptr;
};

std::int64_t Lines(std::int64_t bytes) { return RoundUp(bytes, kLineBytes); }

std::int64_t RowsBytes(const KernelDims& dims) { return Lines(kRoundedRowsMax * dims.hidden * 2); }

Extra ExtraOf(const KernelRun& run) {
  std::byte* at = run.scratch + Lines(run.layout.scratch_bytes);
  Extra extra;
  extra.pointers = reinterpret_cast<const Bf16**>(at);
  at += Lines(kRoundedRowsMax * static_cast<std::int64_t>(sizeof(void*)));
  extra.rows = reinterpret_cast<Bf16*>(at);
  at += RowsBytes(run.dims);
  extra.h = reinterpret_cast<Bf16*>(at);
  extra.codec = at + Lines(run.dims.intermediate * 2);
  return extra;
}

bool RoundsInputs(const KernelRun& run) { return run.inputs.format != ActivationFormat::kBf16; }
bool RoundsMiddle(const KernelRun& run) { return run.middle.format != ActivationFormat::kBf16; }

std::int64_t RowsPerCall(const KernelRun& run) {
  if (!RoundsInputs(run)) return run.layout.rows_per_call;
  return std::min(run.layout.rows_per_call, kRoundedRowsMax);
}

// The larger of `so_far` and every finite |value|.
float LargestFinite(const Bf16* values, std::int64_t count, float so_far) {
  constexpr Bf16 kInfinity = 0x7f80;
  Bf16 largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<Bf16>(values[i] & 0x7fffU);
    // NaN and infinity are left out: one bad row would make a calibration useless.
    if (magnitude < kInfinity) largest = std::max(largest, magnitude);
  }
  return std::max(so_far, Bf16ToFloat(largest));
}

void ApplyDownAffine(const KernelAffine& affine, const KernelCall& call) {
  float* out = call.out;
  for (std::int64_t row = 0; row < call.row_count; ++row, out += call.dims.hidden) {
    for (std::int64_t k = 0; k < call.dims.hidden; ++k) {
      out[k] = out[k] * affine.down_scale[k] + affine.down_bias[k];
    }
  }
}

}  // namespace

std::int64_t ScratchBytes(const KernelLayout& layout, const KernelDims& dims) {
  return Lines(layout.scratch_bytes) +
         Lines(kRoundedRowsMax * static_cast<std::int64_t>(sizeof(void*))) + RowsBytes(dims) +
         Lines(dims.intermediate * 2) +
         Lines(RoundingScratchBytes(std::max(dims.hidden, dims.intermediate)));
}

ExpertCall::ExpertCall(const KernelRun& run, std::int64_t first) : run_(run) {
  const auto left = static_cast<std::int64_t>(run.rows.size()) - first;
  if (run.rounded != nullptr) rounded_ = run.rounded + first;
  call_ = {.dims = run.dims,
           .weights = run.weights,
           .rows = run.rows.data() + first,
           .row_count = std::min(RowsPerCall(run), left),
           .out = run.out + first * run.dims.hidden,
           .scratch = run.scratch,
           .affine = run.affine,
           .blocks = run.blocks};
}

void ExpertCall::LoadRows() {
  const std::int64_t hidden = call_.dims.hidden;
  if (run_.amax != nullptr) {
    for (std::int64_t row = 0; row < call_.row_count; ++row) {
      run_.amax->inputs = LargestFinite(call_.rows[row], hidden, run_.amax->inputs);
    }
  }
  if (RoundsInputs(run_)) {
    const Extra extra = ExtraOf(run_);
    for (std::int64_t row = 0; row < call_.row_count; ++row) {
      // The wire has rounded this row already.
      if (rounded_ != nullptr && rounded_[row] != 0) {
        extra.pointers[row] = call_.rows[row];
        continue;
      }
      Bf16* rounded = extra.rows + row * hidden;
      RoundRow(*run_.rounding, run_.inputs, call_.rows[row], hidden, extra.codec, rounded);
      extra.pointers[row] = rounded;
    }
    call_.rows = extra.pointers;
  }
  run_.family->load_rows(call_);
}

void ExpertCall::RoundMiddle() {
  const bool rounds = RoundsMiddle(run_);
  if (!rounds && run_.amax == nullptr) return;
  const Extra extra = ExtraOf(run_);
  const std::int64_t intermediate = call_.dims.intermediate;
  for (std::int64_t row = 0; row < call_.row_count; ++row) {
    run_.family->load_h(call_, row, extra.h);
    if (run_.amax != nullptr) {
      run_.amax->middle = LargestFinite(extra.h, intermediate, run_.amax->middle);
    }
    if (!rounds) continue;
    RoundRow(*run_.rounding, run_.middle, extra.h, intermediate, extra.codec, extra.h);
    run_.family->store_h(call_, row, extra.h);
  }
}

void ExpertCall::Finish() {
  if (call_.affine != nullptr) ApplyDownAffine(*call_.affine, call_);
}

void RunExpert(const KernelRun& run) {
  const auto row_count = static_cast<std::int64_t>(run.rows.size());
  for (std::int64_t first = 0; first < row_count;) {
    ExpertCall call(run, first);
    call.LoadRows();
    call.GateUp(0, run.layout.gate_up_panels);
    call.RoundMiddle();
    call.Down(0, run.layout.down_panels);
    call.Finish();
    first += call.row_count();
  }
}

}  // namespace switchyard
