#include "worker/device/host/exchange_heap.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/format/wire_format.h"
#include "worker/device/host/row_sums.h"

namespace switchyard {
namespace {

// The version of layout and protocol: ranks of two releases may meet.
constexpr std::int32_t kVersion = 3;
// A rank is a bit of a 64-bit mask.
constexpr std::int32_t kRanksMax = 64;
// Together with the largest hidden size they keep all offsets far below 2^63.
constexpr std::int32_t kTokensMax = 65536;
constexpr std::int32_t kHiddenMax = std::int32_t{1} << 20;

constexpr std::size_t Aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

absl::Status CheckExchange(const ExchangeSpec& spec, std::int32_t rank) {
  if (spec.by_messages) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "exchange: devices of the host write into each other's memory and send no "
                     "messages; use binding p2p between hosts");
  }
  const MoeShape& shape = spec.shape;
  const auto within = [](std::int32_t value, std::int32_t least, std::int32_t most) {
    return value >= least && value <= most;
  };
  if (!within(spec.ranks, 1, kRanksMax) || !within(rank, 0, spec.ranks - 1) ||
      !within(spec.expert_ranks, 1, spec.ranks)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadShape,
        absl::StrFormat("exchange: rank %d of %d, %d of them with experts; a group has 1 to %d "
                        "ranks, and from 1 to all of them have experts",
                        rank, spec.ranks, spec.expert_ranks, kRanksMax));
  }
  if (!within(spec.tokens_max, 1, kTokensMax) || !within(shape.hidden, 1, kHiddenMax) ||
      !within(shape.top_k, 1, static_cast<std::int32_t>(kTermsMax)) || shape.experts < 1 ||
      shape.experts % spec.expert_ranks != 0) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadShape,
        absl::StrFormat("exchange: %d tokens of hidden %d, top-%d of %d experts on %d ranks; at "
                        "most %d tokens, hidden %d and top-%d, and as many experts on each rank",
                        spec.tokens_max, shape.hidden, shape.top_k, shape.experts,
                        spec.expert_ranks, kTokensMax, kHiddenMax, kTermsMax));
  }
  return absl::OkStatus();
}

GroupFacts FactsOf(const ExchangeSpec& spec) {
  return {.version = kVersion,
          .hidden = spec.shape.hidden,
          .intermediate = spec.shape.intermediate,
          .experts = spec.shape.experts,
          .top_k = spec.shape.top_k,
          .ranks = spec.ranks,
          .expert_ranks = spec.expert_ranks,
          .tokens_max = spec.tokens_max,
          .wire_dtype = static_cast<std::int32_t>(spec.wire.dtype),
          .wire_scale = static_cast<std::int32_t>(spec.wire.scale),
          .wire_group = spec.wire.group,
          .unit = static_cast<std::int32_t>(spec.unit)};
}

HeapLayout::HeapLayout(const ExchangeSpec& spec)
    : ranks_(static_cast<std::size_t>(spec.ranks)),
      expert_ranks_(spec.expert_ranks),
      tokens_max_(static_cast<std::size_t>(spec.tokens_max)),
      top_k_(static_cast<std::size_t>(spec.shape.top_k)),
      row_bytes_(RowBytesOf(spec.wire, spec.shape.hidden)) {
  const auto hidden = static_cast<std::size_t>(spec.shape.hidden);
  row_stride_ = Aligned(static_cast<std::size_t>(row_bytes_.data + row_bytes_.scales));
  answer_stride_ = Aligned(hidden * sizeof(Bf16));
  const std::size_t answers_of_token =
      spec.unit == CombineUnit::kPerWorker ? static_cast<std::size_t>(spec.expert_ranks) : top_k_;
  const std::size_t headers = ExchangeHeap::kBuffers * ranks_;
  const std::size_t places = headers * tokens_max_;
  answered_ = sizeof(GroupHeader) + headers * sizeof(SourceHeader);
  answers_ = answered_ + headers * sizeof(AnsweredFlag);
  choices_ = answers_ + ExchangeHeap::kBuffers * tokens_max_ * answers_of_token * answer_stride_;
  rows_ = Aligned(choices_ + places * top_k_ * sizeof(ExchangeChoice));
  bytes_ = rows_ + places * row_stride_;
}

}  // namespace switchyard
