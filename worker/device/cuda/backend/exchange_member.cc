#include "worker/device/cuda/backend/exchange_member.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cuda/exchange/heap_poison.h"

namespace switchyard {
namespace {

absl::Status Checked(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("exchange between GPUs: ", doing, ": ", cudaGetErrorName(error)));
}

struct OwnStream {
  cudaError_t Create() { return cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking); }
  ~OwnStream() {
    if (raw != nullptr) (void)cudaStreamDestroy(raw);
  }
  cudaStream_t raw = nullptr;
};

// Pieces of one buffer, each aligned for any of its uses.
class Pieces {
 public:
  template <typename T>
  T* Take(std::byte* base, std::size_t count) {
    auto* const piece = reinterpret_cast<T*>(base + used_);
    constexpr std::size_t kAlign = 128;
    used_ += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return piece;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::size_t used_ = 0;
};

// The lists from `base` on; returns their size.
std::size_t PlaceLists(const cuda::ExchangeShape& shape, std::byte* base,
                       cuda::ExchangeRows* rows) {
  const auto experts = static_cast<std::size_t>(shape.experts_of_rank);
  const std::size_t choices = static_cast<std::size_t>(shape.ranks) *
                              static_cast<std::size_t>(shape.tokens_max) *
                              static_cast<std::size_t>(shape.top_k);
  Pieces pieces;
  rows->counts = pieces.Take<std::int32_t>(base, experts);
  rows->offsets = pieces.Take<std::int32_t>(base, experts + 1);
  // Products read whole tiles of it.
  rows->row_index = pieces.Take<std::int32_t>(
      base, static_cast<std::size_t>(cuda::ExchangeSlotsMax(shape)) + cuda::kIndexBehind);
  rows->slots = pieces.Take<std::int32_t>(base, choices);
  rows->weights = pieces.Take<float>(base, choices);
  return pieces.used();
}

// The words of normal mode are: the table, the rows, then answers by chunks of tokens.
std::string NameOfAwaited(std::uint32_t awaited) {
  constexpr std::uint32_t kFirstChunk = 3;
  if (awaited == 0) return "it";
  if (awaited < kFirstChunk) return awaited == 1 ? "its table of tokens" : "its rows";
  return absl::StrCat("its answers to chunk ", awaited - kFirstChunk);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExchangeMember>> ExchangeMember::Create(
    DeviceBackend* device, const cuda::ExchangeShape& shape, int rank) {
  if (!cuda::IsExchangeShape(shape) || rank < 0 || rank >= shape.ranks) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadShape,
        absl::StrFormat(
            "exchange between GPUs: no kernels for rank %d of %d with %d tokens of hidden "
            "%d, top-k %d and %d experts of a rank; at most %d ranks, %d tokens and %d "
            "choices in all, hidden a multiple of 128 up to %d",
            rank, shape.ranks, shape.tokens_max, shape.hidden, shape.top_k, shape.experts_of_rank,
            cuda::kExchangeRanksMax, cuda::kNormalTokensMax, cuda::kNormalPairsMax,
            cuda::kExchangeHiddenMax));
  }
  std::unique_ptr<ExchangeMember> member(new ExchangeMember());
  member->device_ = device;
  member->rank_.shape = shape;
  member->rank_.layout = cuda::LayoutOf(shape);
  member->rank_.rank = rank;
  SY_RETURN_IF_ERROR(member->Allocate(device));
  return member;
}

absl::Status ExchangeMember::Allocate(DeviceBackend* device) {
  const std::int64_t bytes = cuda::HeapBytes(rank_.shape, rank_.layout, rank_.rank);
  SY_RETURN_IF_ERROR(AllocateHeap(device, bytes));
  SY_ASSIGN_OR_RETURN(state_, device->Allocate(sizeof(cuda::ExchangeState), MemoryKind::kDevice));
  const std::size_t lists_bytes = PlaceLists(rank_.shape, nullptr, &rows_);
  SY_ASSIGN_OR_RETURN(lists_, device->Allocate(lists_bytes, MemoryKind::kDevice));
  PlaceLists(rank_.shape, lists_->data(), &rows_);
  SY_ASSIGN_OR_RETURN(report_,
                      device->Allocate(sizeof(cuda::ExchangeReport), MemoryKind::kPinnedHost));
  rank_.report = new (report_->data()) cuda::ExchangeReport;
  // All before anybody has the key; on a stream of its own, because others may have work for long.
  OwnStream stream;
  SY_RETURN_IF_ERROR(Checked(stream.Create(), "a stream"));
  SY_RETURN_IF_ERROR(Checked(cuda::PoisonHeap(heap(), bytes, stream.raw), "filling the heap"));
  if (outbox_ != nullptr) {
    SY_RETURN_IF_ERROR(Checked(
        cuda::PoisonHeap(outbox_->data(), static_cast<std::int64_t>(outbox_->bytes()), stream.raw),
        "filling the outbox"));
  }
  SY_RETURN_IF_ERROR(
      Checked(cudaMemsetAsync(state_->data(), 0, sizeof(cuda::ExchangeState), stream.raw),
              "clearing the state"));
  // A step that fails may leave slots as they were: no slots, or those of an earlier step.
  SY_RETURN_IF_ERROR(Checked(cudaMemsetAsync(lists_->data(), 0xff, lists_bytes, stream.raw),
                             "clearing the lists"));
  SY_RETURN_IF_ERROR(Checked(cudaStreamSynchronize(stream.raw), "filling the heap"));
  rank_.state = reinterpret_cast<cuda::ExchangeState*>(state_->data());
  rank_.heaps[rank_.rank] = heap();
  return absl::OkStatus();
}

absl::Status ExchangeMember::AllocateHeap(DeviceBackend* device, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (!rank_.shape.by_messages) {
    SY_ASSIGN_OR_RETURN(heap_, device->AllocateShared(size));
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(heap_.buffer, device->Allocate(size, MemoryKind::kDevice));
  // Also of a rank without experts, which has rows to send.
  SY_ASSIGN_OR_RETURN(
      outbox_, device->Allocate(static_cast<std::size_t>(rank_.layout.bytes), MemoryKind::kDevice));
  return absl::OkStatus();
}

absl::Status ExchangeMember::Join(std::span<const std::string> keys, Duration patience) {
  if (keys.size() != static_cast<std::size_t>(rank_.shape.ranks) || joined_) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrFormat("exchange between GPUs: %d keys for %d ranks, or a second join",
                        keys.size(), rank_.shape.ranks));
  }
  for (int other = 0; other < rank_.shape.ranks; ++other) {
    if (other == rank_.rank) continue;
    if (absl::Status opened = Open(other, keys[static_cast<std::size_t>(other)]); !opened.ok()) {
      heaps_.clear();
      return opened;
    }
  }
  joined_ = true;
  rank_.timeout_ns =
      std::min(static_cast<std::uint64_t>(patience.count()), cuda::kExchangeTimeoutMax);
  return absl::OkStatus();
}

absl::Status ExchangeMember::Open(int rank, const std::string& key) {
  if (outbox_ != nullptr) {
    rank_.heaps[rank] = outbox_->data();
    return absl::OkStatus();
  }
  const std::int64_t bytes = cuda::HeapBytes(rank_.shape, rank_.layout, rank);
  auto heap = device_->OpenShared(key, static_cast<std::size_t>(bytes));
  if (!heap.ok()) {
    return MakeError(
        heap.status().code(), ReasonOf(heap.status()),
        absl::StrCat("exchange between GPUs: rank ", rank, ": ", heap.status().message()),
        {{"rank", absl::StrCat(rank)}});
  }
  rank_.heaps[rank] = (*heap)->data();
  heaps_.push_back(*std::move(heap));
  return absl::OkStatus();
}

absl::Status ExchangeMember::CountSteps(std::uint64_t steps, std::uint64_t most) {
  if (steps_ + steps <= most) {
    steps_ += steps;
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrFormat("exchange between GPUs: the group has made %d steps, as many as its kernels "
                      "tell apart; form another one",
                      steps_));
}

absl::Status ExchangeMember::CheckIds(std::uint64_t step, std::int32_t first_row) const {
  const std::atomic_ref<std::uint64_t> choice(rank_.report->choices[step % cuda::kExchangeReports]);
  const std::uint64_t found = choice.load(std::memory_order_acquire);
  const auto place = static_cast<std::uint32_t>(found);
  if (place == 0 || found >> 32 != (step & 0xffffffffU)) return absl::OkStatus();
  const bool twice = (place & cuda::kChosenTwice) != 0;
  const auto at = static_cast<int>((place & ~cuda::kChosenTwice) - 1);
  const std::int32_t row = first_row + at / rank_.shape.top_k;
  const int k = at % rank_.shape.top_k;
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      twice ? Reason::kDuplicateExpert : Reason::kExpertOutOfRange,
      absl::StrFormat("ids[%d][%d] %s", row, k,
                      twice ? "is an expert that the row names before; add the weights instead"
                            : absl::StrFormat("is no expert: the layer has experts 0 to %d, -1 "
                                              "means none",
                                              cuda::ExpertsOf(rank_.shape) - 1)),
      {{"row", absl::StrCat(row)}, {"k", absl::StrCat(k)}});
}

void ExchangeMember::Lose(int rank) {
  if (rank < 0 || rank >= rank_.shape.ranks) return;
  const std::atomic_ref<std::uint32_t> gone(rank_.report->gone);
  gone.fetch_or(1U << rank, std::memory_order_relaxed);
}

absl::Status ExchangeMember::Fault() const {
  const std::atomic_ref<std::uint32_t> fault(rank_.report->fault);
  const std::uint32_t why = fault.load(std::memory_order_acquire);
  if (why == 0) return absl::OkStatus();
  const bool late = why == static_cast<std::uint32_t>(cuda::ExchangeFault::kTimeout);
  const ErrorMetadata metadata{{"rank", absl::StrCat(rank_.report->rank)},
                               {"step", absl::StrCat(rank_.report->step)}};
  const std::string who =
      absl::StrFormat("rank %d, step %d of the group: ", rank_.report->rank, rank_.report->step);
  if (late) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     who + NameOfAwaited(rank_.report->awaited) +
                         " did not come in time; this step and all later ones of the group are "
                         "no results",
                     metadata);
  }
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
      who + "it means a step of another layer, shape or cover; give all ranks the same", metadata);
}

}  // namespace switchyard
