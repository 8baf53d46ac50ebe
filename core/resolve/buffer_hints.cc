#include "core/resolve/buffer_hints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kBf16Bytes = 2;

std::int64_t AlignUp(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// DeepEP's rows in flight: channels, each with a ring of chunks for each rank of the node.
std::int64_t Channels(const DeepEpNormal& config) { return config.sms / 2; }
// NVLink joins at most eight ranks of a node; DeepEP sizes its rings by that number.
std::int64_t NodeRanks(const DeepEpNormal& config) {
  return std::min<std::int64_t>(config.ranks, 8);
}

std::int64_t HcclValueBytes(DispatchDtype dtype) {
  return dtype == DispatchDtype::kInt8 ? 1 : kBf16Bytes;
}
// A row with its scale and index, before it is cut into blocks.
std::int64_t HcclRow(const HcclShape& shape, DispatchDtype dtype) {
  constexpr std::int64_t kTrailer = 44;
  return AlignUp(shape.hidden * HcclValueBytes(dtype), 32) + kTrailer;
}
std::int64_t HcclCombineRow(const HcclShape& shape) {
  return AlignUp(shape.hidden * kBf16Bytes, 512);
}

}  // namespace

std::int64_t DeepEpLowLatencyBytes(std::int64_t max_tokens_per_step, std::int64_t hidden,
                                   std::int64_t experts) {
  constexpr std::int64_t kHeader = 16;  // source index and three reserved ints
  constexpr std::int64_t kAlign = 128;
  const std::int64_t meta = hidden / 128 * 4;
  const std::int64_t dispatch = kHeader + std::max(kBf16Bytes * hidden, hidden + meta);
  const std::int64_t combine = meta + kBf16Bytes * hidden;
  const std::int64_t send =
      std::max(max_tokens_per_step * dispatch, experts * max_tokens_per_step * combine);
  const std::int64_t receive = experts * max_tokens_per_step * std::max(dispatch, combine);
  const std::int64_t signals = AlignUp(4 * experts, kAlign);
  // Two of everything, because a step may start before the one before it has drained. The library
  // adds a full unit of alignment even to sizes that are aligned already.
  return (2 * (send + receive + signals) + kAlign) / kAlign * kAlign;
}

std::int64_t DeepEpNormalHintBytes(const DeepEpNormal& config) {
  const std::int64_t nodes = std::max<std::int64_t>(config.ranks / 8, 1);
  const std::int64_t lanes = Channels(config) * NodeRanks(config);
  // Row, source index and meta data, 128 top-k ids, 128 weights, 128 scales.
  const std::int64_t row = config.hidden_bytes + 8 + 128 * 8 + 128 * 4 + 128 * 4;
  return AlignUp(lanes * (2 * nodes + 3) * 4 + lanes * config.recv_chunk * row, 128);
}

std::int64_t DeepEpNormalCombineBytes(const DeepEpNormal& config, std::int64_t hidden) {
  const std::int64_t lanes = Channels(config) * NodeRanks(config);
  // Head and tail of each ring; then rows with the index of their source.
  return lanes * 2 * 4 + lanes * config.recv_chunk * (kBf16Bytes * hidden + 4);
}

std::int64_t HcclLowLatencyBytes(const HcclShape& shape, DispatchDtype dtype) {
  // Blocks of 512 bytes carry 480 of payload and a flag.
  const std::int64_t row = AlignUp(HcclRow(shape, dtype), 480) / 480 * 512;
  const std::int64_t dispatch = shape.tokens * row * shape.ranks * shape.local_experts;
  const std::int64_t combine =
      shape.tokens * HcclCombineRow(shape) * (shape.top_k + shape.shared_experts);
  return (dispatch + combine) * 2;
}

std::int64_t HcclNormalBytes(const HcclShape& shape, DispatchDtype dtype, std::int64_t rounds) {
  constexpr std::int64_t kState = 208 * kMiB;
  const std::int64_t row = AlignUp(HcclRow(shape, dtype), 512);
  const std::int64_t combine = HcclCombineRow(shape) * (rounds > 1 ? 2 : 1);
  return (shape.tokens * shape.top_k * (combine + row) + kState) * 2;
}

std::int64_t HcclFusedBytes(const HcclShape& shape) {
  return shape.local_experts * shape.ranks * shape.tokens * shape.hidden * kBf16Bytes * 2;
}

absl::Status CheckHcclWindow(std::int64_t needed_bytes, std::int64_t window_mb) {
  const std::int64_t needed_mb = (needed_bytes + kMiB - 1) / kMiB;
  if (needed_mb <= window_mb) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
      absl::StrFormat("a step needs an HCCL window of %d MB and the worker reports %d MB; start it "
                      "with HCCL_BUFFSIZE=%d or lower max_tokens_per_step",
                      needed_mb, window_mb, needed_mb),
      {{"want", absl::StrCat(needed_mb)}, {"have", absl::StrCat(window_mb)}});
}

}  // namespace switchyard
