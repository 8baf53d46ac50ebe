// Work for a device, in order, and events that say when it is complete.
//
//   stream.Run(run); stream.Copy(pieces); stream.Record(&event); ... event.done() ...
//   event.status()
//
// Each call enqueues one batch and returns; work of one stream runs in the order of the calls, work
// of different streams in any order. What a call names (rows, routing, outputs, tables, workspaces,
// codecs) stays valid and unchanged until an event recorded after it is done. The descriptor itself
// is copied. Rows, scales and outputs are in memory that the device accepts
// (DeviceBackend::host_access, DeviceBackend::MapHost); routing and index lists are in host memory.
//
// Errors: a call that cannot be enqueued says so and enqueues nothing. What fails later makes the
// next recorded event carry the error, and the work between is skipped. A fault of the device
// itself is final: it reaches each open event once, as kUnavailable (WORKER_LOST) with failure
// scope `worker`, and every later call fails with it.
//
// Threads: one thread at a time calls a stream. Events are read by any thread. No call waits for
// the device; enqueuing takes no lock and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/format/bf16.h"
#include "core/format/dtype.h"

namespace switchyard {

class Codec;
class ExpertTable;
class Workspace;

// Streams of an earlier class run first where they compete for the same compute units; a later
// class still progresses.
enum class WorkClass : std::uint8_t { kDecode = 0, kPrefill = 1, kLoad = 2 };

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // True when everything that was enqueued before the last Record is complete, also before the
  // first Record. What that work wrote is visible to a thread that has seen true.
  [[nodiscard]] virtual bool done() const = 0;
  // Once done: OK, or the first error of the work before it.
  [[nodiscard]] virtual absl::Status status() const = 0;
  // Blocks until done, at most `timeout`. False at the time-out. Not for threads that poll rings.
  virtual bool Wait(Duration timeout) = 0;
};

// The rows that the experts of one run return.
enum class CombineUnit : std::uint8_t {
  // A row for each (token, expert); the source applies the weights. Every input row has one slot.
  kPerExpert = 0,
  // A row for each token: the sum over its slots of weight * expert row, slots in the order given,
  // fused multiply-adds in FP32 from zero, rounded once.
  kPerWorker = 1,
};

// The largest finite magnitudes that one expert has seen: of its rows, and of h. Calibration of
// schemes with static scales reads them.
struct ExpertAmax {
  float inputs = 0;
  float middle = 0;
};

// Rows of one request, dense, in their wire format. The device decodes them in its load stage, and
// rounds them as the expert's scheme requires unless a quantized wire format has rounded them
// already.
struct ExpertInput {
  const Codec* codec = nullptr;         // of the wire format, made by this device; null: BF16
  const std::byte* rows = nullptr;      // [count, row bytes]
  const std::byte* scales = nullptr;    // [count, scale bytes] where the format has any
  std::uint32_t count = 0;              // rows
  const std::int32_t* slots = nullptr;  // [count, width]; index into the table, -1: none
  const float* weights = nullptr;       // [count, width]; kPerWorker only
  // [count, hidden] in the run's out_dtype; overlaps no other memory of the run. Its bytes are
  // undefined until the run is complete: a device may decode rows there.
  void* out = nullptr;
  std::uint32_t nan_rows = 0;  // set by the run: rows whose answer holds a NaN
};

// One batch for the experts of one layer.
struct ExpertRun {
  const ExpertTable* experts = nullptr;
  Workspace* workspace = nullptr;  // of the experts' shape; of this stream only
  std::span<ExpertInput> inputs;
  std::int32_t width = 1;  // slots of an input row: 1 for kPerExpert, else the top-k
  CombineUnit combine = CombineUnit::kPerExpert;
  // kF32 with kPerExpert only: the experts' rows before rounding.
  OutputDtype out_dtype = OutputDtype::kBf16;
  ExpertAmax* amax = nullptr;  // [experts of the model], by ExpertId, raised; null: not recorded
};

// Gathers rows x[indices[i]] and writes them in a wire format, densely.
struct EncodeRun {
  const Codec* codec = nullptr;  // made by this device
  const Bf16* x = nullptr;
  std::int64_t x_stride = 0;               // elements from one row to the next
  std::span<const std::uint32_t> indices;  // of rows of x, in wire order
  std::int64_t hidden = 0;
  std::byte* data = nullptr;
  std::byte* scales = nullptr;
};

// y[i] = the sum of terms[begin[i]] .. terms[begin[i + 1]] - 1, each times its weight where there
// are weights, in the order given, in FP32 from zero (fused multiply-adds with weights), rounded
// once when y is BF16. A row without terms is zeros.
struct SumRun {
  std::span<const Bf16* const> terms = {};    // each [hidden]
  std::span<const float> weights = {};        // of terms; empty: plain sums
  std::span<const std::uint32_t> begin = {};  // [rows + 1], ascending
  std::int64_t hidden = 0;
  void* y = nullptr;  // row i at i * y_stride elements
  std::int64_t y_stride = 0;
  OutputDtype y_dtype = OutputDtype::kF32;
};

// `bytes` may be 0. Pieces of one call may run in any order, so they do not overlap.
struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;  // of a row
  // More than one: rows that lie so many bytes apart. On a device without host access neither side
  // of them is kHost memory.
  std::size_t rows = 1;
  std::size_t to_stride = 0;
  std::size_t from_stride = 0;
};

class Stream {
 public:
  // Waits for what is queued.
  virtual ~Stream() = default;

  // Errors of each: kInvalidArgument (BAD_SHAPE, BAD_CONFIG) for what can never run;
  // kUnimplemented (UNSUPPORTED) for what this device lacks; kResourceExhausted (NO_CREDITS) when
  // too much is queued: try again after an event; kUnavailable (WORKER_LOST) after a device fault.
  virtual absl::Status Run(const ExpertRun& run) = 0;
  virtual absl::Status Encode(const EncodeRun& run) = 0;
  virtual absl::Status Sum(const SumRun& run) = 0;
  // Between any two kinds of memory that the device knows.
  virtual absl::Status Copy(std::span<const CopyPiece> pieces) = 0;
  // Work that is enqueued later begins when all is complete that `foreign` holds now: a stream of
  // another part of this process, as the device's own runtime knows it (cuda: a cudaStream_t; null
  // is the legacy default stream). Errors: kInvalidArgument (BAD_REQUEST) for a stream of another
  // device; kFailedPrecondition (UNSUPPORTED) while `foreign` is being captured into a graph;
  // kUnimplemented (UNSUPPORTED) for a device without such streams.
  virtual absl::Status WaitFor(void* foreign) = 0;
  // The reverse: work that `foreign` gets from now on begins when everything that was enqueued here
  // before is complete. Errors: as WaitFor's.
  virtual absl::Status Precede(void* foreign) = 0;
  // `event` becomes done when everything enqueued before is complete. It is of this stream, and
  // done. Only kUnavailable.
  virtual absl::Status Record(DeviceEvent* event) = 0;
  // Calls that are taken now, and an event behind them. Others may be refused, or wait for the
  // device.
  [[nodiscard]] virtual std::uint32_t Room() const {
    return std::numeric_limits<std::uint32_t>::max();
  }
  [[nodiscard]] virtual std::unique_ptr<DeviceEvent> MakeEvent() = 0;
};

// Fixed for the life of a stream.
struct StreamOptions {
  WorkClass work_class = WorkClass::kDecode;
  // Called from any thread after an event that was not done when Record returned becomes done. May
  // be empty; returns quickly and calls nothing of the stream.
  std::function<void()> on_progress{};
  // How much pageable memory a device without host access can have on its way at once; 0: some
  // batches of rows. So much is pinned while the stream exists. A stream with a small amount is for
  // few copies at a time, of memory that the caller has pinned.
  std::size_t staging_bytes = 0;
};

}  // namespace switchyard
