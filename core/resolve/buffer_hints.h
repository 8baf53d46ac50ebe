// The buffer sizes that the EP libraries of GPUs and NPUs require, computed from shapes before they
// start.
//
// Sources: DeepEP csrc/legacy/config.hpp and buffer.hpp (V1); sgl-kernel-npu's tiling code (HCCL
// windows). Sizes are those libraries'; our own buffers are in staging_bytes.h. All counts are > 0
// unless a comment says otherwise. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/format/dtype.h"

namespace switchyard {

// DeepEP V1, low_latency: bytes of its one buffer. It is the same for every wire dtype.
std::int64_t DeepEpLowLatencyBytes(std::int64_t max_tokens_per_step, std::int64_t hidden,
                                   std::int64_t experts);

// DeepEP V1, normal mode, within a node.
struct DeepEpNormal {
  std::int64_t ranks = 0;
  std::int64_t sms = 0;           // num_sms, even
  std::int64_t recv_chunk = 0;    // num_max_nvl_chunked_recv_tokens
  std::int64_t hidden_bytes = 0;  // of one row: 2H for BF16, H for FP8
};
// Its hint for the NVLink buffer, from the bytes of the rows that are dispatched.
std::int64_t DeepEpNormalHintBytes(const DeepEpNormal& config);
// The size that its combine asserts for BF16 rows of `hidden` values, whatever was dispatched: a
// buffer that was sized by the hint of FP8 rows is too small (R34). `config.hidden_bytes` is not
// used.
std::int64_t DeepEpNormalCombineBytes(const DeepEpNormal& config, std::int64_t hidden);

// Ascend: one window of the HCCL buffer must hold a step, or the operator fails when it runs.
struct HcclShape {
  std::int64_t tokens = 0;  // of a step and rank
  std::int64_t hidden = 0;
  std::int64_t ranks = 0;
  std::int64_t local_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t shared_experts = 0;  // may be 0
};
// INT8 rows take a byte for each value, all others two.
std::int64_t HcclLowLatencyBytes(const HcclShape& shape, DispatchDtype dtype);
// `rounds` > 1: a long batch in turns ("ant moving home").
std::int64_t HcclNormalBytes(const HcclShape& shape, DispatchDtype dtype, std::int64_t rounds);
// The fused operator's window is sized for BF16 rows, whatever dtype it sends.
std::int64_t HcclFusedBytes(const HcclShape& shape);

// Errors: kFailedPrecondition (BAD_CONFIG) when `needed_bytes` exceed a window of `window_mb` MiB,
// naming both and the HCCL_BUFFSIZE that suffices.
absl::Status CheckHcclWindow(std::int64_t needed_bytes, std::int64_t window_mb);

}  // namespace switchyard
