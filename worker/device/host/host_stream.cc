#include "worker/device/host/host_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/host/compute_thread.h"
#include "worker/device/host/futex.h"
#include "worker/device/host/host_codec.h"
#include "worker/device/host/host_run.h"
#include "worker/device/host/row_sums.h"
#include "worker/device/run_check.h"

namespace switchyard {
namespace {

// Every sleep has an end, after which the state is read again.
constexpr Duration kDrainSleep = std::chrono::milliseconds(1);
// Row pointers that are collected at once; they live on the stack.
constexpr std::size_t kRowsAtOnce = 64;

absl::Status BadRun(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrFormat("run: %s", what));
}

bool NothingWaits() { return false; }
void RunNothing() {}

// Work inside a call is small, or its device has one thread.
OtherWork NoOthers() { return {.waits = NothingWaits, .run = RunNothing}; }

void EncodeRows(const EncodeRun& run) {
  const HostCodec& codec = AsHostCodec(*run.codec);
  const RowBytes bytes = RowBytesOf(codec.format(), run.hidden);
  std::array<const Bf16*, kRowsAtOnce> rows;
  for (std::size_t done = 0; done < run.indices.size();) {
    const std::size_t count = std::min(kRowsAtOnce, run.indices.size() - done);
    for (std::size_t i = 0; i < count; ++i) {
      rows[i] = run.x + static_cast<std::int64_t>(run.indices[done + i]) * run.x_stride;
    }
    const auto at = static_cast<std::int64_t>(done);
    codec.Encode({rows.data(), count}, run.hidden, run.data + at * bytes.data,
                 run.scales + at * bytes.scales);
    done += count;
  }
}

}  // namespace

HostStream::HostStream(HostKernels* kernels, const std::unique_ptr<ComputeThread>* compute,
                       StreamOptions options, InlineLimits limits)
    : kernels_(kernels), compute_(compute), options_(std::move(options)), limits_(limits) {}

HostStream::~HostStream() {
  for (;;) {
    const std::uint32_t head = head_.load(std::memory_order_acquire);
    // Relaxed: only the owner moves the tail, and the owner is here.
    if (head == tail_.load(std::memory_order_relaxed)) break;
    // The compute thread does not wake this one: a call for each piece of work would cost more.
    FutexWait(head_, head, kDrainSleep);
  }
  if (registered_) (*compute_)->Remove(this);
}

absl::Status HostStream::Run(const ExpertRun& run) {
  SY_RETURN_IF_ERROR(CheckRun(run, static_cast<const HostWorkspace&>(*run.workspace).shape()));
  // Only when nothing is queued: work of a stream runs in the order of the calls.
  if (idle() && (limits_.every_run || IsSmall(run))) {
    Work work = run;
    Perform(work, NoOthers());
    return absl::OkStatus();
  }
  return Queue(run);
}

// Every expert of a run may be read once, and each pair multiplies all of an expert's weights: two
// bytes a weight and two operations, so bytes times pairs is operations.
bool HostStream::IsSmall(const ExpertRun& run) const {
  const auto& table = static_cast<const HostTable&>(*run.experts);
  std::int64_t pairs = 0;
  for (const ExpertInput& input : run.inputs) pairs += std::int64_t{input.count} * run.width;
  const std::int64_t slots = std::max(table.slots(), 1);
  const std::int64_t expert_bytes = table.bytes() / slots;
  return std::min(pairs, slots) * expert_bytes <= limits_.weight_bytes &&
         pairs * expert_bytes <= limits_.flops;
}

absl::Status HostStream::Encode(const EncodeRun& run) { return PerformOrQueue(run); }

absl::Status HostStream::Sum(const SumRun& run) {
  for (std::size_t row = 0; row + 1 < run.begin.size(); ++row) {
    if (run.begin[row + 1] - run.begin[row] > kTermsMax) {
      return BadRun(Reason::kBadTopK,
                    absl::StrFormat("row %d of a sum has %d terms, at most %d", row,
                                    run.begin[row + 1] - run.begin[row], kTermsMax));
    }
  }
  return PerformOrQueue(run);
}

absl::Status HostStream::Copy(std::span<const CopyPiece> pieces) { return PerformOrQueue(pieces); }

absl::Status HostStream::WaitFor(void* /*foreign*/) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "a device that computes in host memory has no streams to wait for");
}

absl::Status HostStream::Record(DeviceEvent* event) {
  auto* own = static_cast<HostEvent*>(event);
  // Everything before the event has been performed inside its own call, so it is done now.
  // on_progress is not called: the caller sees a done event when Record returns.
  if (idle()) {
    own->Complete(absl::OkStatus());
    return absl::OkStatus();
  }
  own->Open();
  absl::Status queued = Queue(own);
  // Nothing will complete it.
  if (!queued.ok()) own->Complete(queued);
  return queued;
}

std::uint32_t HostStream::Room() const {
  const std::uint32_t queued =
      tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_acquire);
  return queued < kQueuedMax - 1 ? kQueuedMax - 1 - queued : 0;
}

std::unique_ptr<DeviceEvent> HostStream::MakeEvent() { return std::make_unique<HostEvent>(); }

absl::Status HostStream::PerformOrQueue(Work work) {
  if (!idle()) return Queue(work);
  Perform(work, NoOthers());
  return absl::OkStatus();
}

absl::Status HostStream::Queue(Work work) {
  // Relaxed: this thread is the only writer of the tail. The acquire of head_ below makes the
  // ring's place free to be overwritten.
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  // One place stays free for the event that ends a batch of work: an event must always fit.
  const bool is_event = std::holds_alternative<HostEvent*>(work);
  const std::uint32_t most = is_event ? kQueuedMax : kQueuedMax - 1;
  if (tail - head_.load(std::memory_order_acquire) >= most) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                     absl::StrFormat("%d pieces of work are queued on a stream of this device; "
                                     "wait for an event",
                                     kQueuedMax));
  }
  // At the first piece that is queued, so that streams with small work only never meet the thread.
  if (!registered_) {
    (*compute_)->Add(this);
    registered_ = true;
  }
  ring_[tail % kQueuedMax] = work;
  // Release: whoever sees the new tail sees the work, and all that its caller wrote before.
  tail_.store(tail + 1, std::memory_order_release);
  (*compute_)->Notify();
  return absl::OkStatus();
}

bool HostStream::ready() const {
  if (!has_work()) return false;
  // Relaxed: the compute thread asks, and is the only writer of the head.
  const Work& oldest = ring_[head_.load(std::memory_order_relaxed) % kQueuedMax];
  const auto* step = std::get_if<QueuedStep>(&oldest);
  return step == nullptr || step->parts->Ready();
}

void HostStream::PerformOldest(const OtherWork& others) {
  // Relaxed: this thread is the only writer of the head.
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  Work& work = ring_[head % kQueuedMax];
  const bool is_event = std::holds_alternative<HostEvent*>(work);
  // An event counts as work done before it says so: its reader may enqueue at once.
  if (is_event) {
    HostEvent* event = std::get<HostEvent*>(work);
    head_.store(head + 1, std::memory_order_release);
    event->Complete(absl::OkStatus());
    if (options_.on_progress) options_.on_progress();
    return;
  }
  if (auto* queued = std::get_if<QueuedStep>(&work)) {
    // The stream stays at the step until its last part.
    if (!queued->parts->Advance(queued->step, others)) return;
  } else {
    Perform(work, others);
  }
  // The head moves after the work: until then the stream is not idle, and its memory is in use.
  head_.store(head + 1, std::memory_order_release);
}

void HostStream::Perform(Work& work, const OtherWork& others) {
  if (auto* run = std::get_if<ExpertRun>(&work)) {
    HostRun(*run, kernels_).Execute(others);
  } else if (const auto* encode = std::get_if<EncodeRun>(&work)) {
    EncodeRows(*encode);
  } else if (const auto* sum = std::get_if<SumRun>(&work)) {
    SumRows(*sum, kernels_->row_ops());
  } else if (const auto* copy = std::get_if<std::span<const CopyPiece>>(&work)) {
    for (const CopyPiece& piece : *copy) {
      if (piece.bytes == 0) continue;  // of a step without tokens: its pointers may be null
      for (std::size_t row = 0; row < piece.rows; ++row) {
        std::memcpy(piece.to + row * piece.to_stride, piece.from + row * piece.from_stride,
                    piece.bytes);
      }
    }
  } else {
    std::get<HostEvent*>(work)->Complete(absl::OkStatus());
  }
}

}  // namespace switchyard
