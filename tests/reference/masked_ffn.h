// The unquantized expert FFN over the layouts in which dispatch libraries leave their rows: padded
// blocks of an expert each (low_latency), or one segment after the other (normal).
//
//   low_latency   x [experts, rows_max, hidden]; the first masked_m[e] rows of block e count
//   normal        x [rows, hidden]; counts[e] rows of expert e follow those of expert e - 1
//
// y = down(silu(gate(x)) * up(x)), with biases where the packed experts have them, not weighted.
// Rows that do not count are never read, whatever stands there, and their y is zero: with a bias
// it would not be.
//
// Source: SGLang's unquantized low-latency MoE (PR 24906), which has no normal mode; here both are
// one path. One caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/format/bf16.h"
#include "tests/testing/expert_runs.h"
#include "worker/device/device_backend.h"

namespace switchyard {

enum class FfnActivation : std::uint8_t { kSilu = 0, kGelu = 1, kRelu2 = 2 };

// What a caller hands over, as its framework describes it. Only what the kernels compute is taken;
// the rest is refused by name.
struct FfnInput {
  const Bf16* x = nullptr;
  std::span<const std::int64_t> shape;  // low_latency {experts, rows_max, hidden}; normal {rows, H}
  // Rows of each expert: masked_m or counts.
  std::span<const std::int32_t> rows;
  const void* scales = nullptr;  // of quantized rows: must be null
  FfnActivation activation = FfnActivation::kSilu;
  bool gated = true;
};

// The experts of one rank with what their runs need.
class MaskedFfn {
 public:
  // `experts` are of one `shape`, packed by `device`; all outlive this.
  static absl::StatusOr<MaskedFfn> Create(DeviceBackend* device, const MoeShape& shape,
                                          std::vector<const PackedExpert*> experts,
                                          std::int64_t rows_max);

  // y: FP32, of x's shape. Errors: kFailedPrecondition (UNSUPPORTED) for scales, an activation
  // other than silu, experts that are not gated; (BAD_SHAPE) for an input of another rank or size,
  // naming it; kOutOfRange never: masked_m beyond rows_max is (BAD_SHAPE). Nothing is written then.
  absl::Status RunLowLatency(const FfnInput& input, float* y);
  absl::Status RunNormal(const FfnInput& input, float* y);

 private:
  MaskedFfn(DeviceBackend* device, const MoeShape& shape, std::vector<const PackedExpert*> experts,
            std::int64_t rows_max);
  [[nodiscard]] absl::Status CheckKind(const FfnInput& input) const;
  void Run(const FfnInput& input, std::int64_t block_rows, float* y);

  DeviceBackend* device_;
  MoeShape shape_;
  std::vector<const PackedExpert*> experts_;
  std::int64_t rows_max_;
  std::vector<const Bf16*> rows_;                // [rows_max]
  std::vector<testing::RowsForExpert> batches_;  // [experts]
};

}  // namespace switchyard
