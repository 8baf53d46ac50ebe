#include "worker/device/cuda/backend/cuda_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cuda/backend/cuda_codec.h"
#include "worker/device/cuda/steps/answer_rows.h"
#include "worker/device/cuda/steps/copy_words.h"
#include "worker/device/run_check.h"

namespace switchyard {
namespace {

constexpr Duration kDrainStep = std::chrono::seconds(1);
// Far above any batch; a kernel that runs so long never ends.
constexpr Duration kStuckAfter = std::chrono::seconds(60);
constexpr std::size_t kUnit = 256;  // of a piece of staging memory
// From here on a copy engine is worth its start, and a copy by the device worth one of its own.
constexpr std::size_t kLargeBytes = std::size_t{256} << 10;
constexpr std::size_t kCollectedPart = 8;  // small pieces take at most this part of the ring

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

absl::Status NoCredits(absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                   absl::StrFormat("%s of this stream of a CUDA device; wait for an event", what));
}

int PriorityOf(WorkClass work_class) {
  int least = 0;
  int greatest = 0;  // the smaller number
  (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
  return std::min(greatest + static_cast<int>(work_class), least);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(CudaShared* shared,
                                                               StreamOptions options) {
  const int priority = PriorityOf(options.work_class);
  SY_ASSIGN_OR_RETURN(CudaMemory staging, shared->staging.Take(options.staging_bytes));
  std::unique_ptr<CudaStream> stream(
      new CudaStream(shared, std::move(options), std::move(staging)));
  SY_RETURN_IF_ERROR(shared->fault.Check(
      cudaStreamCreateWithPriority(&stream->raw_, cudaStreamNonBlocking, priority), "a stream"));
  SY_RETURN_IF_ERROR(shared->fault.Check(
      cudaEventCreateWithFlags(&stream->foreign_, cudaEventDisableTiming), "an event"));
  shared->completion->Add(stream.get());
  return stream;
}

CudaStream::~CudaStream() {
  if (raw_ == nullptr) return;
  const KeptContext kept(shared_->contexts);
  (void)cudaSetDevice(shared_->device);
  for (;;) {
    const std::uint32_t head = open_head_.load(std::memory_order_acquire);
    if (head == open_tail_.load(std::memory_order_relaxed)) break;
    open_[head % kOpenMax].event->Wait(kDrainStep);
  }
  shared_->completion->Remove(this);
  if (!shared_->fault.broken()) (void)cudaStreamSynchronize(raw_);
  if (foreign_ != nullptr) (void)cudaEventDestroy(foreign_);
  (void)cudaStreamDestroy(raw_);
  shared_->staging.Give(ring_.TakeMemory());
}

absl::Status CudaStream::Begin() {
  if (shared_->fault.broken()) return shared_->fault.status();
  return shared_->fault.Check(cudaSetDevice(shared_->device), "selecting the device");
}

absl::StatusOr<std::byte*> CudaStream::Stage(std::size_t bytes) {
  std::byte* const staged = ring_.Allocate(bytes);
  if (staged == nullptr) return NoCredits("the staging memory is in use");
  return staged;
}

absl::Status CudaStream::CheckLeftovers(std::size_t count) const {
  const std::uint32_t used = leftover_tail_ - leftover_head_.load(std::memory_order_acquire);
  if (used + count <= kLeftoverMax) return absl::OkStatus();
  return NoCredits("too many copies are queued; too few events were recorded");
}

void CudaStream::Leave(const Leftover& leftover) {
  leftovers_[leftover_tail_ % kLeftoverMax] = leftover;
  ++leftover_tail_;
}

absl::Status CudaStream::Run(const ExpertRun& run) {
  SY_RETURN_IF_ERROR(Begin());
  SY_RETURN_IF_ERROR(CheckRun(run, static_cast<const CudaWorkspace&>(*run.workspace).shape()));
  SY_RETURN_IF_ERROR(CheckLeftovers(1));
  Leftover leftover{
      .inputs = run.inputs, .table = static_cast<const CudaTable*>(run.experts), .amax = run.amax};
  SY_RETURN_IF_ERROR(ExpertPasses(run, &ring_, raw_, &shared_->fault).Enqueue(&leftover.results));
  if (leftover.results.nan != nullptr) Leave(leftover);
  return absl::OkStatus();
}

absl::Status CudaStream::Enqueue(absl::FunctionRef<absl::Status(cudaStream_t)> work) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  return work(raw_);
}

absl::Status CudaStream::Encode(const EncodeRun& run) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  if (run.indices.empty()) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(std::byte* const staged, Stage(run.indices.size_bytes()));
  std::memcpy(staged, run.indices.data(), run.indices.size_bytes());
  const CudaCodec& codec = AsCudaCodec(*run.codec);
  const RowBytes bytes = RowBytesOf(codec.format(), run.hidden);
  const cuda::GatheredRows rows{.activations = run.x,
                                .index = reinterpret_cast<const std::int32_t*>(staged),
                                .rows = static_cast<std::int64_t>(run.indices.size()),
                                .hidden = run.hidden,
                                .stride = run.x_stride};
  const cuda::EncodedRows out{.data = run.data,
                              .scales = run.scales,
                              .data_stride = bytes.data,
                              .scale_stride = bytes.scales};
  return shared_->fault.Check(cuda::EncodeRows(codec.rows(), rows, codec.global_scale(), out, raw_),
                              "encoding rows");
}

absl::Status CudaStream::Sum(const SumRun& run) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  if (run.begin.size() < 2) return absl::OkStatus();
  const std::size_t begin_at = run.terms.size_bytes();
  const std::size_t weights_at = begin_at + run.begin.size_bytes();
  SY_ASSIGN_OR_RETURN(std::byte* const staged, Stage(weights_at + run.weights.size_bytes()));
  const auto place = [staged](std::size_t at, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(staged + at, from, bytes);
  };
  place(0, run.terms.data(), run.terms.size_bytes());
  place(begin_at, run.begin.data(), run.begin.size_bytes());
  place(weights_at, run.weights.data(), run.weights.size_bytes());
  const auto* weights = reinterpret_cast<const float*>(staged + weights_at);
  const cuda::RowSums sums{.terms = reinterpret_cast<const std::uint16_t* const*>(staged),
                           .weights = run.weights.empty() ? nullptr : weights,
                           .begin = reinterpret_cast<const std::uint32_t*>(staged + begin_at),
                           .rows = static_cast<std::int64_t>(run.begin.size()) - 1,
                           .hidden = run.hidden,
                           .y = static_cast<std::byte*>(run.y),
                           .y_stride = run.y_stride,
                           .fp32 = run.y_dtype == OutputDtype::kF32};
  return shared_->fault.Check(cuda::SumRows(sums, raw_), "adding rows");
}

absl::StatusOr<CudaStream::Direction> CudaStream::DirectionOf(const CopyPiece& piece,
                                                              std::size_t large) const {
  if (piece.bytes == 0 || piece.rows == 0) return Direction::kDirect;  // addresses may be null
  const bool one_row = piece.rows == 1;
  // Small pieces of host memory are collected, wherever they lie.
  const auto is_pageable = [&](const void* at) -> absl::StatusOr<bool> {
    cudaPointerAttributes attributes = {};
    SY_RETURN_IF_ERROR(
        shared_->fault.Check(cudaPointerGetAttributes(&attributes, at), "looking at an address"));
    return attributes.type == cudaMemoryTypeUnregistered ||
           (attributes.type == cudaMemoryTypeHost && one_row && piece.bytes < large);
  };
  SY_ASSIGN_OR_RETURN(const bool from, is_pageable(piece.from));
  SY_ASSIGN_OR_RETURN(const bool to, is_pageable(piece.to));
  if (!one_row && (from || to)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     "a copy of rows with a stride needs memory that the device reaches on both "
                     "sides; copy row by row");
  }
  if (from && to) return Direction::kHost;
  if (from) return Direction::kIn;
  return to ? Direction::kOut : Direction::kDirect;
}

absl::StatusOr<std::size_t> CudaStream::StagedBytes(std::span<const CopyPiece> pieces,
                                                    std::size_t large) const {
  std::size_t staged = 0;
  for (const CopyPiece& piece : pieces) {
    SY_ASSIGN_OR_RETURN(const Direction direction, DirectionOf(piece, large));
    if (direction == Direction::kIn || direction == Direction::kOut) staged += piece.bytes + kUnit;
  }
  return staged;
}

absl::Status CudaStream::Copy(std::span<const CopyPiece> pieces) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  SY_RETURN_IF_ERROR(CheckLeftovers(pieces.size()));
  // Whoever asks for little staging memory has few pieces and pins them.
  std::size_t large = options_.staging_bytes > 0 ? 0 : kLargeBytes;
  SY_ASSIGN_OR_RETURN(std::size_t staged, StagedBytes(pieces, large));
  if (staged > ring_.capacity() / kCollectedPart || 2 * staged > ring_.free()) {
    // Many small pieces that the device can reach: it takes them one by one.
    large = 0;
    SY_ASSIGN_OR_RETURN(staged, StagedBytes(pieces, large));
  }
  // Twice, for what is left empty where the ring starts again.
  if (2 * staged > ring_.capacity()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                     absl::StrFormat("a copy of %d bytes of pageable memory needs more than the %d "
                                     "bytes of staging memory of a stream; copy less at once",
                                     staged, ring_.capacity()));
  }
  if (2 * staged > ring_.free()) return NoCredits("the staging memory is in use");
  while (!pieces.empty()) {
    SY_ASSIGN_OR_RETURN(const Direction direction, DirectionOf(pieces[0], large));
    std::size_t count = 1;
    if (direction == Direction::kIn || direction == Direction::kOut) {
      for (; count < pieces.size(); ++count) {
        const CopyPiece& last = pieces[count - 1];
        const CopyPiece& next = pieces[count];
        SY_ASSIGN_OR_RETURN(const Direction of_next, DirectionOf(next, large));
        const bool neighbors = direction == Direction::kIn ? last.to + last.bytes == next.to
                                                           : last.from + last.bytes == next.from;
        if (of_next != direction || !neighbors) break;
      }
    }
    SY_RETURN_IF_ERROR(CopyStaged(pieces.first(count), direction));
    pieces = pieces.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status CudaStream::CopyStaged(std::span<const CopyPiece> pieces, Direction direction) {
  const auto enqueue = [this](std::byte* to, const std::byte* from, std::size_t bytes) {
    const bool words =
        (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) %
            16 ==
        0;
    // An engine's kernels occupy the GPU for long, and do not hold up its copy engines.
    const bool engine = options_.staging_bytes > 0;
    return shared_->fault.Check(words && bytes < kLargeBytes && !engine
                                    ? cuda::CopyWords(to, from, bytes, raw_)
                                    : cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw_),
                                "copying memory");
  };
  if (direction == Direction::kHost) {
    Leave({.copy = pieces[0]});
    return absl::OkStatus();
  }
  if (pieces[0].rows != 1) {  // stands alone
    const CopyPiece& piece = pieces[0];
    if (piece.rows == 0 || piece.bytes == 0) return absl::OkStatus();
    return shared_->fault.Check(
        cudaMemcpy2DAsync(piece.to, piece.to_stride, piece.from, piece.from_stride, piece.bytes,
                          piece.rows, cudaMemcpyDefault, raw_),
        "copying rows");
  }
  std::size_t bytes = 0;
  for (const CopyPiece& piece : pieces) bytes += piece.bytes;
  if (bytes == 0) return absl::OkStatus();
  if (direction == Direction::kDirect) return enqueue(pieces[0].to, pieces[0].from, bytes);
  SY_ASSIGN_OR_RETURN(std::byte * at, Stage(bytes));
  if (direction == Direction::kIn) {
    std::byte* const begin = at;
    for (const CopyPiece& piece : pieces) {
      std::memcpy(at, piece.from, piece.bytes);
      at += piece.bytes;
    }
    return enqueue(pieces[0].to, begin, bytes);
  }
  SY_RETURN_IF_ERROR(enqueue(at, pieces[0].from, bytes));
  for (const CopyPiece& piece : pieces) {
    Leave({.copy = {.to = piece.to, .from = at, .bytes = piece.bytes}});
    at += piece.bytes;
  }
  return absl::OkStatus();
}

absl::Status CudaStream::WaitFor(void* foreign) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  auto* const other = static_cast<cudaStream_t>(foreign);
  SY_RETURN_IF_ERROR(CheckNotCaptured(other));
  SY_RETURN_IF_ERROR(CheckForeign(cudaEventRecord(foreign_, other)));
  // The wait keeps the state that the event has now, so the event serves the next call too.
  return shared_->fault.Check(cudaStreamWaitEvent(raw_, foreign_, 0), "waiting for a stream");
}

absl::Status CudaStream::CheckNotCaptured(cudaStream_t foreign) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(foreign, &capture);
  if (asked != cudaErrorStreamCaptureImplicit &&
      (asked != cudaSuccess || capture == cudaStreamCaptureStatusNone)) {
    return CheckForeign(asked);
  }
  (void)cudaGetLastError();
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   "the stream is being captured into a graph, which no step that is submitted can "
                   "be part of; submit it outside of the capture, or add it to a graph");
}

absl::Status CudaStream::Precede(void* foreign) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  SY_RETURN_IF_ERROR(CheckNotCaptured(static_cast<cudaStream_t>(foreign)));
  SY_RETURN_IF_ERROR(
      shared_->fault.Check(cudaEventRecord(foreign_, raw_), "the state of a stream"));
  return CheckForeign(cudaStreamWaitEvent(static_cast<cudaStream_t>(foreign), foreign_, 0));
}

absl::Status CudaStream::CheckForeign(cudaError_t error) {
  if (error != cudaErrorInvalidResourceHandle && error != cudaErrorContextIsDestroyed) {
    return shared_->fault.Check(error, "the state of a stream");
  }
  (void)cudaGetLastError();
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
      absl::StrFormat("the stream is none of CUDA device %d; pass one of it", shared_->device),
      {{"field", "stream"}});
}

absl::Status CudaStream::Record(DeviceEvent* event) {
  const KeptContext kept(shared_->contexts);
  SY_RETURN_IF_ERROR(Begin());
  auto* own = static_cast<CudaEvent*>(event);
  const std::uint32_t tail = open_tail_.load(std::memory_order_relaxed);
  if (tail - open_head_.load(std::memory_order_acquire) >= kOpenMax) {
    return NoCredits("too many events are open");
  }
  SY_RETURN_IF_ERROR(shared_->fault.Check(cudaEventRecord(own->raw(), raw_), "recording an event"));
  own->Open();
  open_[tail % kOpenMax] = {
      .event = own, .leftovers = leftover_tail_, .staging = ring_.position(), .opened = Now()};
  // The completion thread that sees the new tail sees the event and the leftovers before it.
  open_tail_.store(tail + 1);
  shared_->completion->Notify();
  return absl::OkStatus();
}

std::unique_ptr<DeviceEvent> CudaStream::MakeEvent() {
  const KeptContext kept(shared_->contexts);
  cudaEvent_t raw = nullptr;
  absl::Status made = Begin();
  if (made.ok()) {
    made = shared_->fault.Check(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming), "an event");
  }
  return std::make_unique<CudaEvent>(made.ok() ? raw : nullptr);
}

bool CudaStream::CompleteEvents(bool* moved) {
  for (;;) {
    const std::uint32_t head = open_head_.load(std::memory_order_relaxed);
    if (head == open_tail_.load(std::memory_order_acquire)) return false;
    const OpenEvent open = open_[head % kOpenMax];
    if (!shared_->fault.broken()) {
      const cudaError_t state = cudaEventQuery(open.event->raw());
      if (state == cudaErrorNotReady) {
        if (Now() - open.opened < kStuckAfter) return true;
        (void)shared_->fault.ReportStuck("a batch of work");
      } else {
        (void)shared_->fault.Check(state, "a batch of work");
      }
    }
    *moved = true;
    CompleteOldest(open);
  }
}

// The event counts as gone before it says so: its reader may enqueue at once.
void CudaStream::CompleteOldest(const OpenEvent& open) {
  const bool whole = !shared_->fault.broken();
  std::uint32_t leftover = leftover_head_.load(std::memory_order_relaxed);
  for (; leftover != open.leftovers; ++leftover) {
    if (whole) Finish(leftovers_[leftover % kLeftoverMax]);
  }
  leftover_head_.store(leftover, std::memory_order_release);
  ring_.Release(open.staging);
  open_head_.store(open_head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  open.event->Complete(whole ? absl::OkStatus() : shared_->fault.status());
  if (options_.on_progress) options_.on_progress();
}

void CudaStream::Finish(const Leftover& leftover) {
  if (leftover.copy.bytes > 0) {
    std::memcpy(leftover.copy.to, leftover.copy.from, leftover.copy.bytes);
  }
  const std::uint8_t* nan = leftover.results.nan;
  for (ExpertInput& input : leftover.inputs) {
    for (std::uint32_t row = 0; row < input.count; ++row) input.nan_rows += *nan++;
  }
  const float* amax = leftover.results.amax;
  if (amax == nullptr) return;
  for (std::int32_t slot = 0; slot < leftover.table->slots(); ++slot, amax += 2) {
    const ExpertId expert = leftover.table->entry(static_cast<std::size_t>(slot)).expert;
    ExpertAmax& raised = leftover.amax[expert.value];
    raised.inputs = std::max(raised.inputs, amax[0]);
    raised.middle = std::max(raised.middle, amax[1]);
  }
}

}  // namespace switchyard
