#include "worker/device/host/exchange_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "worker/device/host/host_codec.h"
#include "worker/device/host/host_run.h"
#include "worker/device/host/row_sums.h"

namespace switchyard {
namespace {

// Bounds the memory of a step: more pairs go in several passes, each of which reads the weights
// again. So many rows for each of 128 experts hide that.
constexpr std::int64_t kPairsOfPass = 2048;

constexpr std::uint64_t BitOf(std::int32_t rank) { return std::uint64_t{1} << rank; }

}  // namespace

std::int64_t ExchangeRows::PairsOfPass(const ExchangeSpec& spec) {
  const std::int64_t all = std::int64_t{spec.ranks} * spec.tokens_max * spec.shape.top_k;
  return std::min(all, kPairsOfPass);
}

ExchangeRows::ExchangeRows(Parts parts)
    : parts_(std::move(parts)),
      layout_(parts_.spec),
      hidden_(static_cast<std::size_t>(parts_.spec.shape.hidden)),
      top_k_(static_cast<std::size_t>(parts_.spec.shape.top_k)),
      pairs_of_pass_(static_cast<std::size_t>(PairsOfPass(parts_.spec))) {
  terms_.reserve(std::max(top_k_, static_cast<std::size_t>(parts_.spec.ranks)));
  factors_.reserve(top_k_);
  if (!has_experts()) return;
  inputs_.reserve(pairs_of_pass_);
  slots_.reserve(pairs_of_pass_);
  weights_.reserve(pairs_of_pass_);
  tokens_.reserve(pairs_of_pass_);
}

absl::StatusOr<std::unique_ptr<ExchangeRows>> ExchangeRows::Create(Parts parts) {
  std::unique_ptr<ExchangeRows> rows(new ExchangeRows(std::move(parts)));
  SY_ASSIGN_OR_RETURN(rows->encoded_, AlignedBuffer::Allocate(rows->layout_.row_bytes().total()));
  if (rows->spec().unit != CombineUnit::kPerWorker) return rows;
  const std::size_t row = rows->hidden_ * sizeof(Bf16);
  const std::size_t sums = static_cast<std::size_t>(rows->spec().expert_ranks) * row;
  SY_ASSIGN_OR_RETURN(rows->decoded_, AlignedBuffer::Allocate(static_cast<std::int64_t>(sums)));
  if (rows->has_experts()) {
    const std::size_t bytes = rows->pairs_of_pass_ * row;
    SY_ASSIGN_OR_RETURN(rows->answers_, AlignedBuffer::Allocate(static_cast<std::int64_t>(bytes)));
  }
  return rows;
}

RowBytes ExchangeRows::BytesOf(const Codec* codec) const {
  return RowBytesOf(codec == nullptr ? kBf16Format : codec->format(), spec().shape.hidden);
}

std::int32_t ExchangeRows::PlaceOf(const ExchangeStep& step, std::int32_t expert) const {
  if (expert < 0 || expert >= spec().shape.experts) return -1;
  return step.places == nullptr ? expert : step.places[expert];
}

// Also of what another process has written.
std::int32_t ExchangeRows::RankOf(std::int32_t place) const {
  if (place < 0 || place >= spec().shape.experts) return -1;
  return place / spec().experts_of_rank();
}

std::uint64_t ExchangeRows::Send(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                                 const ExchangeStep& step) {
  std::uint64_t all = 0;
  for (std::int32_t token = 0; token < step.tokens; ++token) {
    const std::size_t at = static_cast<std::size_t>(token) * top_k_;
    std::uint64_t ranks = 0;
    for (std::size_t k = 0; k < top_k_; ++k) {
      const std::int32_t rank = RankOf(PlaceOf(step, step.ids[at + k]));
      if (rank >= 0) ranks |= BitOf(rank);
    }
    // A rank that gets no row has to know that, too.
    for (std::int32_t rank = 0; rank < spec().expert_ranks; ++rank) {
      ExchangeChoice* const choices =
          heaps[static_cast<std::size_t>(rank)].choices(number, parts_.rank, token);
      for (std::size_t k = 0; k < top_k_; ++k) {
        choices[k] = {.expert = PlaceOf(step, step.ids[at + k]), .weight = step.weights[at + k]};
      }
    }
    if (ranks != 0) {
      SendRow(heaps, number, token, ranks, step);
    }
    all |= ranks;
  }
  return all;
}

void ExchangeRows::SendRow(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                           std::int32_t token, std::uint64_t ranks, const ExchangeStep& step) {
  const Bf16* const x = step.x + static_cast<std::size_t>(token) * hidden_;
  const Codec* const codec = step.codecs.rows;
  const RowBytes bytes = BytesOf(codec);
  const auto* row = reinterpret_cast<const std::byte*>(x);
  // Encoded once, also for this rank itself: an answer does not depend on where its expert is.
  if (codec != nullptr) {
    AsHostCodec(*codec).Encode({&x, 1}, spec().shape.hidden, encoded_.data(),
                               encoded_.data() + bytes.data);
    row = encoded_.data();
  }
  for (std::int32_t rank = 0; rank < spec().expert_ranks; ++rank) {
    if ((ranks & BitOf(rank)) == 0) continue;
    std::memcpy(heaps[static_cast<std::size_t>(rank)].row(number, parts_.rank, token), row,
                static_cast<std::size_t>(bytes.total()));
  }
}

std::uint64_t ExchangeRows::RunExperts(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                                       std::span<const std::int32_t> tokens,
                                       const ExchangeStep& step, const OtherWork& others) {
  std::uint64_t rows = 0;
  for (std::int32_t source = 0; source < spec().ranks; ++source) {
    for (std::int32_t token = 0; token < tokens[static_cast<std::size_t>(source)]; ++token) {
      if (inputs_.size() + top_k_ > pairs_of_pass_) {
        RunPass(heaps, number, step, others);
        if (others.waits()) others.run();
      }
      if (Gather(heaps, number, source, token, step.codecs.rows)) ++rows;
    }
  }
  RunPass(heaps, number, step, others);
  return rows;
}

bool ExchangeRows::Gather(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                          std::int32_t source, std::int32_t token, const Codec* codec) {
  const ExchangeHeap& own = heaps[static_cast<std::size_t>(parts_.rank)];
  const RowBytes bytes = BytesOf(codec);
  const std::byte* const row = own.row(number, source, token);
  const ExchangeChoice* const choices = own.choices(number, source, token);
  PassToken of{.source = source, .token = token, .begin = inputs_.size()};
  for (std::size_t k = 0; k < top_k_; ++k) {
    // A copy: the source could change it between the check and the use.
    const ExchangeChoice choice = choices[k];
    if (RankOf(choice.expert) != parts_.rank) continue;
    const std::size_t pair = inputs_.size();
    slots_.push_back(choice.expert % spec().experts_of_rank());
    weights_.push_back(choice.weight);
    Bf16* const out = spec().unit == CombineUnit::kPerWorker
                          ? reinterpret_cast<Bf16*>(answers_.data()) + pair * hidden_
                          : heaps[static_cast<std::size_t>(source)].answer(number, token, k);
    inputs_.push_back({.codec = codec,
                       .rows = row,
                       .scales = row + bytes.data,
                       .count = 1,
                       .slots = &slots_.back(),
                       .out = out});
  }
  of.end = inputs_.size();
  if (of.end == of.begin) return false;
  tokens_.push_back(of);
  return true;
}

void ExchangeRows::RunPass(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                           const ExchangeStep& step, const OtherWork& others) {
  if (inputs_.empty()) return;
  const ExpertRun run{.experts = step.experts,
                      .workspace = parts_.workspace.get(),
                      .inputs = inputs_,
                      .width = 1,
                      .combine = CombineUnit::kPerExpert};
  HostRun(run, parts_.kernels).Execute(others);
  if (spec().unit == CombineUnit::kPerWorker) {
    for (const PassToken& of : tokens_) SendSum(heaps, number, of, step.codecs.sums);
  }
  if (step.slot_rows != nullptr) {
    for (const std::int32_t slot : slots_) {
      std::atomic<std::uint32_t>& rows = step.slot_rows[slot];
      // The only writer; nothing is published through it.
      rows.store(rows.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }
  inputs_.clear();
  slots_.clear();
  weights_.clear();
  tokens_.clear();
}

void ExchangeRows::SendSum(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                           const PassToken& of, const Codec* codec) {
  terms_.clear();
  for (std::size_t pair = of.begin; pair < of.end; ++pair) {
    terms_.push_back(static_cast<const Bf16*>(inputs_[pair].out));
  }
  const auto weights = std::span(weights_).subspan(of.begin, of.end - of.begin);
  Bf16* const to = heaps[static_cast<std::size_t>(of.source)].sum(number, parts_.rank, of.token);
  if (codec == nullptr) {
    Sum(weights, to, OutputDtype::kBf16);
    return;
  }
  // Free now: the source's rows are decoded when this rank combines.
  auto* const sum = reinterpret_cast<Bf16*>(decoded_.data());
  Sum(weights, sum, OutputDtype::kBf16);
  auto* const row = reinterpret_cast<std::byte*>(to);
  const Bf16* const from = sum;
  AsHostCodec(*codec).Encode({&from, 1}, spec().shape.hidden, row, row + BytesOf(codec).data);
}

const Bf16* ExchangeRows::SumOf(const ExchangeHeap& own, std::uint64_t number, std::int32_t rank,
                                std::int32_t token, const Codec* codec) {
  const Bf16* const sum = own.sum(number, rank, token);
  if (codec == nullptr) return sum;
  auto* const out =
      reinterpret_cast<Bf16*>(decoded_.data()) + static_cast<std::size_t>(rank) * hidden_;
  const auto* const row = reinterpret_cast<const std::byte*>(sum);
  AsHostCodec(*codec).Decode(row, row + BytesOf(codec).data, 1, spec().shape.hidden, out);
  return out;
}

void ExchangeRows::Combine(std::span<const ExchangeHeap> heaps, std::uint64_t number,
                           const ExchangeStep& step) {
  const ExchangeHeap& own = heaps[static_cast<std::size_t>(parts_.rank)];
  for (std::int32_t token = 0; token < step.tokens; ++token) {
    const std::size_t at = static_cast<std::size_t>(token) * top_k_;
    std::uint64_t ranks = 0;
    terms_.clear();
    factors_.clear();
    for (std::size_t k = 0; k < top_k_; ++k) {
      const std::int32_t rank = RankOf(PlaceOf(step, step.ids[at + k]));
      if (rank < 0) continue;
      ranks |= BitOf(rank);
      if (spec().unit == CombineUnit::kPerWorker) continue;
      terms_.push_back(own.answer(number, token, k));
      factors_.push_back(step.weights[at + k]);
    }
    if (spec().unit == CombineUnit::kPerWorker) {
      for (std::int32_t rank = 0; rank < spec().expert_ranks; ++rank) {
        if ((ranks & BitOf(rank)) == 0) continue;
        terms_.push_back(SumOf(own, number, rank, token, step.codecs.sums));
      }
    }
    const std::size_t bytes = step.y_dtype == OutputDtype::kF32 ? sizeof(float) : sizeof(Bf16);
    Sum(factors_,
        static_cast<std::byte*>(step.y) + static_cast<std::size_t>(token) * hidden_ * bytes,
        step.y_dtype);
  }
}

void ExchangeRows::Sum(std::span<const float> weights, void* y, OutputDtype y_dtype) {
  const std::array<std::uint32_t, 2> begin{0, static_cast<std::uint32_t>(terms_.size())};
  SumRows({.terms = terms_,
           .weights = weights,
           .begin = begin,
           .hidden = spec().shape.hidden,
           .y = y,
           .y_stride = spec().shape.hidden,
           .y_dtype = y_dtype},
          parts_.kernels->row_ops());
}

}  // namespace switchyard
