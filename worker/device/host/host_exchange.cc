#include "worker/device/host/host_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/host/host_stream.h"
#include "worker/device/host/shared_memory.h"

namespace switchyard {
namespace {

constexpr std::uintptr_t kAlignment = 16;
// A packed fault: kind in the highest byte, then the rank, then the step.
constexpr int kKindShift = 56;
constexpr int kRankShift = 48;
constexpr std::uint64_t kStepMask = (std::uint64_t{1} << kRankShift) - 1;

TimePoint Now() { return SteadyClock().Now(); }

absl::Status BadStep(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason,
                   absl::StrCat("exchange: step: ", what));
}

std::int32_t CodeOf(const Codec* codec) {
  return WireFormatCode(codec == nullptr ? kBf16Format : codec->format());
}

bool Aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0;
}

}  // namespace

std::uint64_t HostExchange::StepFault::Packed() const {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << kKindShift |
         std::uint64_t{static_cast<std::uint8_t>(rank)} << kRankShift | (step & kStepMask);
}

std::optional<HostExchange::StepFault> HostExchange::StepFault::Of(std::uint64_t packed) {
  if (packed == 0) return std::nullopt;
  const auto lost = static_cast<std::uint64_t>(FaultKind::kLost);
  return StepFault{.kind = packed >> kKindShift == lost ? FaultKind::kLost : FaultKind::kOtherStep,
                   .rank = static_cast<std::int32_t>(packed >> kRankShift & 0xff),
                   .step = packed & kStepMask};
}

HostExchange::HostExchange(std::unique_ptr<ExchangeRows> rows)
    : rows_(std::move(rows)), layout_(rows_->spec()) {
  tokens_.resize(static_cast<std::size_t>(rows_->spec().ranks));
}

absl::StatusOr<std::unique_ptr<HostExchange>> HostExchange::Create(
    std::unique_ptr<ExchangeRows> rows) {
  std::unique_ptr<HostExchange> exchange(new HostExchange(std::move(rows)));
  const std::int32_t rank = exchange->rows_->rank();
  SY_ASSIGN_OR_RETURN(exchange->own_, AllocateHostShared(exchange->layout_.bytes(rank)));
  // Headers and flags are zeros, as the memory is.
  GroupHeader& group = ExchangeHeap(&exchange->layout_, exchange->own_.buffer->data()).group();
  group.facts = FactsOf(exchange->rows_->spec());
  group.rank = rank;
  return exchange;
}

absl::StatusOr<std::unique_ptr<Buffer>> HostExchange::Open(absl::string_view key,
                                                           std::int32_t rank) const {
  // How large it is follows from what it was made for.
  GroupHeader group;
  {
    SY_ASSIGN_OR_RETURN(const auto head, OpenHostShared(key, sizeof group));
    const auto* const found = reinterpret_cast<const GroupHeader*>(head->data());
    group.facts = found->facts;
    group.rank = found->rank;
  }
  if (group.facts != FactsOf(rows_->spec())) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
        absl::StrFormat("it was made for another group (%d ranks, %d with experts, "
                        "%d tokens, hidden %d, %d experts, top-%d, or another wire "
                        "format or unit), or by another release; make all ranks alike",
                        group.facts.ranks, group.facts.expert_ranks, group.facts.tokens_max,
                        group.facts.hidden, group.facts.experts, group.facts.top_k));
  }
  if (group.rank != rank) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrFormat("its key is that of rank %d; give keys by rank", group.rank));
  }
  return OpenHostShared(key, layout_.bytes(rank));
}

absl::Status HostExchange::Join(std::span<const std::string> keys, Duration patience) {
  const ExchangeSpec& spec = rows_->spec();
  if (std::ssize(keys) != spec.ranks || !heaps_.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrFormat("exchange: %d keys for %d ranks, or a second join",
                                     keys.size(), spec.ranks));
  }
  std::vector<std::unique_ptr<Buffer>> opened;
  std::vector<ExchangeHeap> heaps;
  for (std::int32_t rank = 0; rank < spec.ranks; ++rank) {
    if (rank == rows_->rank()) {
      heaps.emplace_back(&layout_, own_.buffer->data());
      continue;
    }
    auto heap = Open(keys[static_cast<std::size_t>(rank)], rank);
    if (!heap.ok()) {
      return WithMetadata(Annotate(heap.status(), absl::StrCat("exchange: rank ", rank)), "rank",
                          absl::StrCat(rank));
    }
    heaps.emplace_back(&layout_, (*heap)->data());
    opened.push_back(*std::move(heap));
  }
  opened_ = std::move(opened);
  heaps_ = std::move(heaps);
  patience_ = patience;
  return absl::OkStatus();
}

bool HostExchange::CountInto(ExchangeCounts* counts) {
  counts_ = counts;
  return true;
}

absl::Status HostExchange::CheckStep(const ExchangeStep& step) const {
  const ExchangeSpec& spec = rows_->spec();
  if (step.cover < 0 || step.cover > spec.tokens_max || step.tokens < 0 ||
      step.tokens > step.cover) {
    return BadStep(Reason::kBadShape,
                   absl::StrFormat("%d tokens and cover %d; the group was made for %d tokens, and "
                                   "cover is at least a rank's",
                                   step.tokens, step.cover, spec.tokens_max));
  }
  if (step.tokens > 0 && (step.x == nullptr || step.ids == nullptr || step.weights == nullptr ||
                          step.y == nullptr || !Aligned(step.x) || !Aligned(step.y))) {
    return BadStep(Reason::kBadRequest,
                   "x, ids, weights or y is missing, or x or y is not on a border of 16 bytes");
  }
  const RowBytes& most = rows_->layout().row_bytes();
  if (rows_->BytesOf(step.codecs.rows).total() > most.total() ||
      rows_->BytesOf(step.codecs.sums).total() > rows_->BytesOf(nullptr).total()) {
    return BadStep(Reason::kBadShape,
                   absl::StrFormat("its rows are larger than those of %s, which the group was made "
                                   "for, or its sums than BF16",
                                   WireFormatName(spec.wire)));
  }
  if (rows_->has_experts() != (step.experts != nullptr)) {
    return BadStep(Reason::kBadRequest,
                   absl::StrFormat("rank %d %s experts", rows_->rank(),
                                   rows_->has_experts() ? "has no table of its" : "has no"));
  }
  if (step.experts != nullptr && step.experts->slots() != spec.experts_of_rank()) {
    return BadStep(Reason::kBadShape,
                   absl::StrFormat("a table of %d experts; rank %d has %d", step.experts->slots(),
                                   rows_->rank(), spec.experts_of_rank()));
  }
  return absl::OkStatus();
}

absl::Status HostExchange::Step(Stream* stream, const ExchangeStep& step) {
  SY_CHECK(!heaps_.empty(), "a step of a group that has not been joined");
  SY_RETURN_IF_ERROR(CheckStep(step));
  // Steps of two streams would run in any order.
  if (stream_ != nullptr && stream != stream_) {
    return BadStep(Reason::kBadRequest, "the group's earlier steps went to another stream");
  }
  SY_RETURN_IF_ERROR(static_cast<HostStream*>(stream)->Queue({.parts = this, .step = step}));
  stream_ = stream;
  return absl::OkStatus();
}

absl::Status HostExchange::Fault() const {
  const std::optional<StepFault> fault = StepFault::Of(fault_.load(std::memory_order_acquire));
  if (!fault.has_value()) return absl::OkStatus();
  // Steps count from 0 outside.
  const std::uint64_t step = fault->step - 1;
  const std::string who = absl::StrFormat("rank %d, step %d of the group: ", fault->rank, step);
  const ErrorMetadata metadata{{"rank", absl::StrCat(fault->rank)}, {"step", absl::StrCat(step)}};
  if (fault->kind == FaultKind::kLost) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     who +
                         "it did not come in time; this step and all later ones of the group are "
                         "no results",
                     metadata);
  }
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
      who +
          "it means a step of another number, layer, cover or format; give all ranks the "
          "same",
      metadata);
}

bool HostExchange::Ready() const {
  const Progress progress = CheckProgress();
  return progress.arrived || progress.fault.has_value();
}

bool HostExchange::Advance(const ExchangeStep& step, const OtherWork& others) {
  // A group that has failed does not recover.
  if (fault_.load(std::memory_order_relaxed) != 0) return true;
  const Progress progress = CheckProgress();
  if (progress.fault.has_value()) {
    Fail(*progress.fault);
    return true;
  }
  if (!progress.arrived) return false;
  switch (stage_) {
    case Stage::kBegin:
      Begin(step);
      stage_ = Stage::kRows;
      break;
    case Stage::kRows:
      RunExperts(step, others);
      stage_ = Stage::kAnswers;
      break;
    case Stage::kAnswers:
      rows_->Combine(heaps_, number_, step);
      stage_ = Stage::kBegin;
      ++number_;
      return true;
  }
  since_ = Now();
  return false;
}

// Other ranks are looked at before the clock: what has come counts, however late this rank looks.
HostExchange::Progress HostExchange::CheckProgress() const {
  if (fault_.load(std::memory_order_relaxed) != 0) return {.arrived = true};
  const ExchangeHeap& own = heaps_[static_cast<std::size_t>(rows_->rank())];
  const auto told = StepFault::Of(own.group().fault.load(std::memory_order_acquire));
  // This rank may be one step behind: that one is still a result.
  if (told.has_value() && told->step <= number_) return {.fault = told};
  if (stage_ == Stage::kBegin) return {.arrived = true};
  if (stage_ == Stage::kAnswers) return Await(FirstWithoutAnswer());
  std::int32_t missing = -1;
  for (std::int32_t source = 0; source < rows_->spec().ranks; ++source) {
    const SourceHeader& header = own.header(number_, source);
    // Acquire: whoever sees the number sees the rows.
    const std::uint64_t sent = header.sent.load(std::memory_order_acquire);
    if (sent < number_) {
      missing = Sooner(missing, source);
    } else if (sent > number_ || header.layer != layer_ || header.cover != cover_ ||
               header.tokens < 0 || header.tokens > cover_ || header.formats != formats_ ||
               header.global_scale != global_scale_) {
      return {.fault = StepFault{FaultKind::kOtherStep, source, number_}};
    }
  }
  return Await(missing);
}

HostExchange::Progress HostExchange::Await(std::int32_t missing) const {
  if (missing < 0) return {.arrived = true};
  if (!IsLost(missing) && Now() - since_ < patience_) return {};
  return {.fault = StepFault{FaultKind::kLost, missing, number_}};
}

std::int32_t HostExchange::FirstWithoutAnswer() const {
  const ExchangeHeap& own = heaps_[static_cast<std::size_t>(rows_->rank())];
  std::int32_t missing = -1;
  for (std::int32_t rank = 0; rank < rows_->spec().expert_ranks; ++rank) {
    if ((answering_ >> rank & 1U) == 0) continue;
    if (own.answered(number_, rank).step.load(std::memory_order_acquire) < number_) {
      missing = Sooner(missing, rank);
    }
  }
  return missing;
}

bool HostExchange::IsLost(std::int32_t rank) const {
  return (lost_.load(std::memory_order_relaxed) >> rank & 1U) != 0;
}

std::int32_t HostExchange::Sooner(std::int32_t missing, std::int32_t other) const {
  return missing < 0 || (IsLost(other) && !IsLost(missing)) ? other : missing;
}

void HostExchange::Lose(std::int32_t rank) {
  if (rank < 0 || rank >= rows_->spec().ranks) return;
  lost_.fetch_or(std::uint64_t{1} << rank, std::memory_order_relaxed);
}

void HostExchange::Begin(const ExchangeStep& step) {
  layer_ = step.layer.value;
  cover_ = step.cover;
  formats_ = CodeOf(step.codecs.rows) | CodeOf(step.codecs.sums) << 8;
  const Codec* const rows = step.codecs.rows;
  global_scale_ = rows == nullptr ? 1.0F : rows->global_scale();
  answering_ = rows_->Send(heaps_, number_, step);
  for (const ExchangeHeap& heap : heaps_) {
    SourceHeader& header = heap.header(number_, rows_->rank());
    header.layer = layer_;
    header.cover = step.cover;
    header.tokens = step.tokens;
    header.formats = formats_;
    header.global_scale = global_scale_;
    header.sent.store(number_, std::memory_order_release);
  }
}

void HostExchange::RunExperts(const ExchangeStep& step, const OtherWork& others) {
  if (!rows_->has_experts()) return;
  if (counts_ != nullptr) counts_->peer_wait.Observe(Now() - since_);
  const ExchangeHeap& own = heaps_[static_cast<std::size_t>(rows_->rank())];
  for (std::size_t source = 0; source < tokens_.size(); ++source) {
    // Once more within bounds: the source could have changed it since CheckProgress.
    const std::int32_t tokens = own.header(number_, static_cast<std::int32_t>(source)).tokens;
    tokens_[source] = std::clamp(tokens, 0, cover_);
  }
  const std::uint64_t rows = rows_->RunExperts(heaps_, number_, tokens_, step, others);
  if (counts_ != nullptr) counts_->rows.fetch_add(rows, std::memory_order_relaxed);
  for (const ExchangeHeap& heap : heaps_) {
    heap.answered(number_, rows_->rank()).step.store(number_, std::memory_order_release);
  }
}

void HostExchange::Fail(const StepFault& fault) {
  const std::uint64_t packed = fault.Packed();
  for (const ExchangeHeap& heap : heaps_) {
    SharedWord& word = heap.group().fault;
    std::uint64_t now = word.load(std::memory_order_relaxed);
    while (now == 0 || (now & kStepMask) > fault.step) {
      if (word.compare_exchange_weak(now, packed, std::memory_order_release,
                                     std::memory_order_relaxed)) {
        break;
      }
    }
  }
  fault_.store(packed, std::memory_order_release);
}

}  // namespace switchyard
