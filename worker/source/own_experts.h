// The gateway worker's own experts, which its source calls directly, without a ring in between.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/dispatch_config.h"
#include "core/format/bf16.h"
#include "core/ids.h"
#include "core/plan.h"
#include "worker/routing/dispatch_plan.h"

namespace switchyard {

// One chunk for the worker's own experts. All memory stays valid for the call.
struct OwnChunk {
  absl::string_view deployment;
  SessionId session;
  Epoch epoch;
  PlanHash hash;
  LayerId layer;
  DispatchMode mode = DispatchMode::kNormal;
  std::span<const PlannedRow> rows;     // in wire order
  std::span<const Bf16* const> x;       // a BF16 row for each of `rows`
  bool rounded = false;                 // they went through the codec of a quantized wire dtype
  std::span<const std::byte> metadata;  // as the frame of this chunk would carry
  Bf16* out = nullptr;                  // [rows, hidden]
};

class OwnExperts {
 public:
  virtual ~OwnExperts() = default;
  // Runs on the calling thread and counts the rows for `session`, with no wire bytes. Errors:
  // kFailedPrecondition (STALE_EPOCH) when the epoch is not committed here.
  virtual absl::Status Run(const OwnChunk& chunk) = 0;
  // The session's last step of `epoch` has ended.
  virtual void Release(SessionId session, Epoch epoch) = 0;
  // The session is gone.
  virtual void Close(SessionId session) = 0;
};

}  // namespace switchyard
