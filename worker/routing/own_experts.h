// The experts of the process that is the source itself (a gateway worker): called directly, with no
// ring between. The source sees this interface; worker/expert implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/dispatch_config.h"
#include "core/format/bf16.h"
#include "core/format/wire_format.h"
#include "core/ids.h"
#include "core/plan.h"

namespace switchyard {

// A session's claim on an epoch of the process's own experts.
struct OwnBinding {
  absl::string_view deployment;
  SessionId session;
  Epoch epoch;
  PlanHash hash;
  Duration step_deadline{};  // no step of the session takes longer
};

// One chunk for the process's own experts, as its frame would carry it. Rows and `out` stay valid
// until the run has ended; the rest is copied.
struct OwnChunk {
  absl::string_view deployment;
  SessionId session;
  Epoch epoch;
  PlanHash hash;
  LayerId layer;
  Phase phase = Phase::kMixed;
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format;
  std::uint32_t count = 0;              // rows
  const std::byte* rows = nullptr;      // [count, row bytes]
  const std::byte* scales = nullptr;    // [count, scale bytes]
  std::span<const std::byte> metadata;  // worker/routing/request_codec.h
  Bf16* out = nullptr;                  // [count, hidden]
};

// A chunk that is running. Thread-compatible.
class OwnRun {
 public:
  // Waits for the device.
  virtual ~OwnRun() = default;
  [[nodiscard]] virtual bool done() const = 0;
  // Once, when done: counts the rows for the session and gives the result.
  virtual absl::Status Finish() = 0;
};

// Thread-safe, because sessions of several threads share it.
class OwnExperts {
 public:
  virtual ~OwnExperts() = default;
  // Holds the epoch for the session until Release or Close; a retired one as long as the deadlines
  // of its steps allow. Repeated, it announces longer steps. Errors: kFailedPrecondition
  // (STALE_EPOCH) when the epoch is not committed here under that hash, or is retiring and not
  // bound; kInvalidArgument (BAD_CONFIG) when it has other layers or sizes than the session's.
  virtual absl::Status Bind(const OwnBinding& binding) = 0;
  // Enqueues the chunk. Errors: kFailedPrecondition (STALE_EPOCH) when the session does not bind
  // the epoch under that hash, kUnavailable when its binding has ended because it was overdue;
  // kNotFound (UNKNOWN_LAYER); kInvalidArgument (FRAME, BAD_DTYPE) for a chunk that does not fit;
  // those of Stream and, at the first run of a shape, MakeWorkspace.
  virtual absl::StatusOr<std::unique_ptr<OwnRun>> Start(const OwnChunk& chunk) = 0;
  // Sets the function that is called, from any thread, when a run may have become done; empty:
  // none. The former function is not called any more once this returns.
  virtual void SetOnProgress(std::function<void()> on_progress) = 0;
  // Ends the session's binding of the epoch; ignored when there is none. A retiring epoch waits for
  // its last binding to end.
  virtual void Release(SessionId session, Epoch epoch) = 0;
  // Forgets the session and its counts.
  virtual void Close(SessionId session) = 0;
};

}  // namespace switchyard
