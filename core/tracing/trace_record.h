// The record that a thread of steps writes about a traced step: one for each part that its process
// has in it. The exporting thread makes spans of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/dispatch_mode.h"
#include "core/format/dtype.h"
#include "core/ids.h"
#include "core/tracing/trace_ids.h"

namespace switchyard {

// A part of a step, and what `times` are for it. A time that is TimePoint{} was never reached.
enum class TracedPart : std::uint8_t {
  kStep,      // at the source: submitted, planned, last answer, ended
  kLockstep,  // at the source of a collective session: submitted, in the device's stream, ended
  kChunk,     // at the source, for each chunk: encoding begun, sent, answered or given up
  kOwnChunk,  // the same at a gateway, of a chunk for its own experts
  kServe,     // at a worker, for each chunk: arrived, batch begun, batch ended, answered
};

// Fixed in size, because it goes through a TraceRing. All text is in place.
struct TraceRecord {
  // Longer names are cut, on both sides alike.
  static constexpr std::size_t kWorkerBytes = 64;

  StepKey key;
  TracedPart part = TracedPart::kStep;
  DispatchMode mode = DispatchMode::kNormal;
  DispatchDtype dtype = DispatchDtype::kBf16;  // of the rows on the way to the worker
  absl::StatusCode code = absl::StatusCode::kOk;
  Reason reason = Reason::kUnspecified;  // of an error
  LayerId layer;
  Epoch epoch;
  std::uint32_t chunk = 0;
  std::uint32_t rows = 0;  // of kStep and kLockstep: tokens
  std::uint64_t request_bytes = 0;
  std::uint64_t reply_bytes = 0;
  std::array<TimePoint, 4> times{};
  std::array<char, kWorkerBytes> worker{};  // its id, ended by a zero; empty for those two

  void SetWorker(absl::string_view id) {
    const std::size_t size = id.size() < kWorkerBytes ? id.size() : kWorkerBytes - 1;
    std::memcpy(worker.data(), id.data(), size);
    worker[size] = '\0';
  }
  void SetStatus(const absl::Status& status) {
    code = status.code();
    reason = status.ok() ? Reason::kUnspecified : ReasonOf(status);
  }
};
static_assert(std::is_trivially_copyable_v<TraceRecord>);

}  // namespace switchyard
