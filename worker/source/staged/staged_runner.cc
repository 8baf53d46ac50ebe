#include "worker/source/staged/staged_runner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// One turn of a wait: work of a device ends by itself.
constexpr Duration kWait = std::chrono::seconds(1);
// Each tensor of a step begins at a multiple of this in the slot's memory.
constexpr std::size_t kAlign = 256;

std::size_t Aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void WaitUntilDone(DeviceEvent& event) {
  while (!event.Wait(kWait)) {
  }
}

// [rows, columns] of the engine's, of which a row is dense.
struct Rows {
  std::size_t rows = 0;
  std::size_t bytes = 0;   // of a row
  std::size_t stride = 0;  // bytes; unused for one row
};

Rows RowsOf(std::int32_t tokens, std::int32_t columns, std::int64_t stride, std::size_t element) {
  return {static_cast<std::size_t>(tokens), static_cast<std::size_t>(columns) * element,
          static_cast<std::size_t>(stride) * element};
}

// Between the engine's rows and dense ones. Without gaps all rows are one.
CopyPiece PieceOf(const Rows& rows, void* to, const void* from, bool to_is_dense) {
  CopyPiece piece{.to = static_cast<std::byte*>(to), .from = static_cast<const std::byte*>(from)};
  if (rows.rows <= 1 || rows.stride == rows.bytes) {
    piece.bytes = rows.rows * rows.bytes;
    return piece;
  }
  piece.bytes = rows.bytes;
  piece.rows = rows.rows;
  piece.to_stride = to_is_dense ? rows.bytes : rows.stride;
  piece.from_stride = to_is_dense ? rows.stride : rows.bytes;
  return piece;
}

absl::Status InputsLate(const StepRequest& request) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline,
                   absl::StrFormat("layer %d: what the stream held at the step's submission did "
                                   "not end before the step's deadline; retry, or open the session "
                                   "with a longer step_deadline",
                                   request.layer.value),
                   {{"layer", absl::StrCat(request.layer.value)}});
}

}  // namespace

StagedRunner::StagedRunner(StagedRunnerOptions options)
    : options_(std::move(options)), inner_(options_.inner.get()) {
  // The longest that it can get: Submit must not allocate once the pool is full.
  in_flight_.reserve(options_.steps_max);
}

// Before the members go: the device may still use what slots hold.
StagedRunner::~StagedRunner() { Close({}); }

absl::StatusOr<StepLimits> StagedRunner::LimitsOf(LayerId layer) const {
  SY_ASSIGN_OR_RETURN(StepLimits limits, inner_->LimitsOf(layer));
  limits.host_memory = false;
  return limits;
}

absl::StatusOr<StepTicket> StagedRunner::Submit(const StepRequest& request, TimePoint now) {
  SY_ASSIGN_OR_RETURN(const StepLimits limits, LimitsOf(request.layer));
  SY_RETURN_IF_ERROR(ValidateStep(request, limits));
  SY_RETURN_IF_ERROR(CheckMemory(request));
  SY_ASSIGN_OR_RETURN(const std::uint32_t index, FreeSlot());
  Slot& slot = *slots_[index];
  // First: a stream that cannot be waited for is the likeliest mistake, and a wait alone does
  // nothing.
  if (request.tokens > 0) SY_RETURN_IF_ERROR(options_.reads->WaitFor(request.stream));
  slot.request = request;
  const bool on_device = limits.device_tokens_min > 0 && request.tokens >= limits.device_tokens_min;
  SY_RETURN_IF_ERROR(BeginReading(limits, on_device, slot));
  const Duration wait =
      request.deadline > Duration::zero() ? request.deadline : limits.step_deadline;
  slot.deadline = now + std::min(wait, kStepDeadlineMax);
  slot.status = absl::OkStatus();
  slot.stage = Stage::kReading;
  ++slot.generation;
  in_flight_.push_back(index);
  return StepTicket{index, slot.generation};
}

absl::Status StagedRunner::CheckMemory(const StepRequest& request) const {
  if (request.tokens == 0) return absl::OkStatus();
  const std::pair<const char*, const void*> tensors[] = {
      {"x", request.x}, {"ids", request.ids}, {"weights", request.weights}, {"y", request.y}};
  for (const auto& [name, address] : tensors) {
    const absl::StatusOr<MemoryKind> kind = options_.device->KindAt(address);
    if (!kind.ok()) return Annotate(kind.status(), name);
    if (*kind != MemoryKind::kHost) continue;
    // A copy of it would run when it is enqueued, whatever the engine's stream still has to write.
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrFormat("layer %d: %s is pageable memory of the host; pass memory of "
                                     "%s, or pinned memory",
                                     request.layer.value, name, options_.device_name),
                     {{"field", name}, {"want", options_.device_name}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> StagedRunner::FreeSlot() {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->stage == Stage::kFree) return i;
  }
  if (slots_.size() < options_.steps_max) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->read = options_.reads->MakeEvent();
    slots_.back()->written = options_.writes->MakeEvent();
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
      absl::StrFormat("%d steps of this session were not waited for yet; wait for one first",
                      options_.steps_max),
      {{"limit", absl::StrCat(options_.steps_max)}});
}

absl::Status StagedRunner::BeginReading(const StepLimits& limits, bool on_device, Slot& slot) {
  SY_RETURN_IF_ERROR(Place(limits, on_device, slot));
  if (slot.request.tokens > 0) {
    const std::span<const CopyPiece> inputs = slot.inputs;
    SY_RETURN_IF_ERROR(options_.reads->Copy(on_device ? inputs.first(2) : inputs));
  }
  return options_.reads->Record(slot.read.get());
}

absl::Status StagedRunner::Place(const StepLimits& limits, bool on_device, Slot& slot) {
  const StepRequest& request = slot.request;
  const MoeShape& shape = limits.shape;
  const std::size_t y_size = limits.y_dtype == OutputDtype::kBf16 ? sizeof(Bf16) : sizeof(float);
  const Rows x = RowsOf(request.tokens, shape.hidden, request.x_stride, sizeof(Bf16));
  const Rows ids = RowsOf(request.tokens, shape.top_k, request.ids_stride, sizeof(std::int32_t));
  const Rows weights = RowsOf(request.tokens, shape.top_k, request.weights_stride, sizeof(float));
  const Rows y = RowsOf(request.tokens, shape.hidden, request.y_stride, y_size);
  const auto bytes_for = [&](std::size_t tokens) {
    const std::size_t routing = Aligned(tokens * ids.bytes) + Aligned(tokens * weights.bytes);
    return on_device ? routing : routing + Aligned(tokens * x.bytes) + Aligned(tokens * y.bytes);
  };
  if (slot.memory == nullptr || slot.memory->bytes() < bytes_for(x.rows)) {
    // Pinning memory takes milliseconds: once for all steps where their size has a bound.
    const std::size_t room = limits.max_tokens > 0
                                 ? static_cast<std::size_t>(limits.max_tokens)
                                 : std::bit_ceil(std::max<std::size_t>(x.rows, 1));
    slot.memory.reset();
    SY_ASSIGN_OR_RETURN(slot.memory,
                        options_.device->Allocate(bytes_for(room), MemoryKind::kPinnedHost));
  }
  std::byte* at = slot.memory->data();
  const auto place = [&at](const Rows& rows) {
    return std::exchange(at, at + Aligned(rows.rows * rows.bytes));
  };
  std::byte* const routing[] = {place(ids), place(weights)};
  slot.staged = request;
  slot.staged.stream = nullptr;
  slot.staged.on_device = on_device;
  slot.staged.ids = reinterpret_cast<const std::int32_t*>(routing[0]);
  slot.staged.ids_stride = shape.top_k;
  slot.staged.weights = reinterpret_cast<const float*>(routing[1]);
  slot.staged.weights_stride = shape.top_k;
  slot.inputs[0] = PieceOf(ids, routing[0], request.ids, /*to_is_dense=*/true);
  slot.inputs[1] = PieceOf(weights, routing[1], request.weights, /*to_is_dense=*/true);
  if (on_device) {
    // A single row's may be 0, which is none of a matrix.
    slot.staged.x_stride = std::max<std::int64_t>(request.x_stride, shape.hidden);
    slot.staged.y_stride = std::max<std::int64_t>(request.y_stride, shape.hidden);
    return absl::OkStatus();
  }
  std::byte* const rows[] = {place(x), place(y)};
  slot.staged.x = reinterpret_cast<const Bf16*>(rows[0]);
  slot.staged.x_stride = shape.hidden;
  slot.staged.y = rows[1];
  slot.staged.y_stride = shape.hidden;
  slot.inputs[2] = PieceOf(x, rows[0], request.x, /*to_is_dense=*/true);
  slot.output = PieceOf(y, request.y, rows[1], /*to_is_dense=*/false);
  return absl::OkStatus();
}

RunnerProgress StagedRunner::Poll(TimePoint now) {
  RunnerProgress progress = inner_->Poll(now);
  TimePoint wake_at = TimePoint::max();
  for (const std::uint32_t index : in_flight_) {
    Slot& slot = *slots_[index];
    progress.worked |= Advance(slot, now);
    if (slot.stage == Stage::kReading && slot.status.ok()) {
      wake_at = std::min(wake_at, slot.deadline);
    }
  }
  std::erase_if(in_flight_,
                [this](std::uint32_t index) { return slots_[index]->stage == Stage::kDone; });
  progress.wake_at = std::min(progress.wake_at, wake_at);
  return progress;
}

bool StagedRunner::Advance(Slot& slot, TimePoint now) {
  bool moved = false;
  // A device that works in the call takes a step through several stages at once.
  if (slot.stage == Stage::kReading) moved |= AfterReading(slot, now);
  if (slot.stage == Stage::kRunning) moved |= AfterRunning(slot, now);
  if (slot.stage == Stage::kWriting && slot.written->done()) {
    slot.status = slot.written->status();
    slot.stage = Stage::kDone;
    moved = true;
  }
  return moved;
}

bool StagedRunner::AfterReading(Slot& slot, TimePoint now) {
  const bool late = slot.status.ok() && now >= slot.deadline;
  if (late) slot.status = InputsLate(slot.staged);
  if (!slot.read->done()) return late;
  if (slot.status.ok()) slot.status = slot.read->status();
  if (slot.status.ok()) slot.status = BeginRunning(slot, now);
  if (!slot.status.ok()) slot.stage = Stage::kDone;
  return true;
}

absl::Status StagedRunner::BeginRunning(Slot& slot, TimePoint now) {
  slot.staged.deadline = slot.deadline - now;
  absl::StatusOr<StepTicket> ticket = inner_->Submit(slot.staged, now);
  // A worker was lost, or the plan has changed, since the step was placed.
  if (slot.staged.on_device && absl::IsUnimplemented(ticket.status())) {
    SY_ASSIGN_OR_RETURN(const StepLimits limits, LimitsOf(slot.request.layer));
    return BeginReading(limits, /*on_device=*/false, slot);
  }
  SY_RETURN_IF_ERROR(ticket.status());
  slot.inner = *ticket;
  slot.stage = Stage::kRunning;
  return absl::OkStatus();
}

bool StagedRunner::AfterRunning(Slot& slot, TimePoint now) {
  const absl::StatusOr<bool> done = inner_->IsDone(slot.inner);
  if (done.ok() && !*done) return false;
  slot.status = done.ok() ? inner_->Take(slot.inner, now) : done.status();
  slot.stage = Stage::kDone;
  if (slot.status.ok() && !slot.staged.on_device) BeginWriting(slot);
  return true;
}

void StagedRunner::BeginWriting(Slot& slot) {
  if (slot.staged.tokens == 0) return;
  slot.status = options_.writes->Copy({&slot.output, 1});
  if (slot.status.ok()) slot.status = options_.writes->Record(slot.written.get());
  if (!slot.status.ok()) return;
  slot.stage = Stage::kWriting;
}

absl::StatusOr<bool> StagedRunner::IsDone(const StepTicket& ticket) const {
  if (ticket.slot >= slots_.size() || slots_[ticket.slot]->stage == Stage::kFree ||
      slots_[ticket.slot]->generation != ticket.generation) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                     "the step is already complete or was never submitted; submit it again");
  }
  return slots_[ticket.slot]->stage == Stage::kDone;
}

absl::Status StagedRunner::Take(const StepTicket& ticket, TimePoint now) {
  SY_ASSIGN_OR_RETURN(const bool done, IsDone(ticket));
  Slot& slot = *slots_[ticket.slot];
  if (!done) {
    GiveUp(slot,
           MakeError(absl::StatusCode::kCancelled, Reason::kUnspecified, "given up by its caller"),
           now);
  }
  // It may have been done, and not retired by a Poll yet.
  std::erase(in_flight_, ticket.slot);
  slot.stage = Stage::kFree;
  return slot.status;
}

void StagedRunner::GiveUp(Slot& slot, const absl::Status& why, TimePoint now) {
  if (slot.stage == Stage::kReading) {
    if (slot.status.ok()) slot.status = why;
    WaitUntilDone(*slot.read);
    slot.stage = Stage::kDone;
  } else if (slot.stage == Stage::kRunning) {
    inner_->Take(slot.inner, now).IgnoreError();
    slot.status = why;
    slot.stage = Stage::kDone;
  } else if (slot.stage == Stage::kWriting) {
    // Its result is on its way: the wait is short, and then y is complete.
    WaitUntilDone(*slot.written);
    slot.status = slot.written->status();
    slot.stage = Stage::kDone;
  }
}

void StagedRunner::Close(TimePoint now) {
  // Source::Close, the destructor of a Source and that of the runner may all come here.
  if (closed_) return;
  closed_ = true;
  // First the inner runner: it may still be summing into memory of slots.
  inner_->Close(now);
  const absl::Status why = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                                     "the session was closed with this step in flight", {});
  for (const std::uint32_t index : in_flight_) GiveUp(*slots_[index], why, now);
  in_flight_.clear();
}

RunnerStatus StagedRunner::Status() const {
  RunnerStatus status = inner_->Status();
  // The inner runner does not know those that are with the device.
  status.steps_in_flight = static_cast<std::uint32_t>(in_flight_.size());
  return status;
}

}  // namespace switchyard
