// The gateway's end of one Forward stream: a session of the worker's own source, on a thread of its
// own for as long as the stream.
//
//   gRPC: OnRequest --steps, at most `credits` without answer--> session thread:
//   Open, Submit..., Wait for the first that is done --> Write(result)
//
// A caller that sends more than its credits waits: its stream is not read. A step is submitted when
// it arrives, so that a short one does not wait for the result of a long one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "services/grpc/server_streams.h"
#include "services/grpc/thread_pool.h"
#include "services/worker/gateway_counts.h"
#include "services/worker/gateway_sessions.h"
#include "services/worker/step_memory.h"
#include "services/worker/tenant_sessions.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "worker/source/source_pool.h"

namespace switchyard {

// The part of a gateway that the callers of a tenant share.
struct GatewayPart {
  std::shared_ptr<StepMemory> memory;                 // for their steps
  std::shared_ptr<SessionPlaces> sessions = nullptr;  // null: as many as the gateway takes
};

// Bounds of the sessions through one gateway. The timeouts are those of the source's calls.
struct GatewayOptions {
  std::string worker_id;
  std::uint32_t credits = 8;  // steps of one session without an answer
  // For the steps of all sessions. A step that does not fit is refused (kResourceExhausted,
  // NO_CREDITS) and may be repeated.
  std::shared_ptr<StepMemory> memory = std::make_shared<StepMemory>(std::size_t{1} << 30);
  // Finds what one caller may have of the gateway, by its verified id. Null: all of it. Errors end
  // the caller's stream.
  std::function<absl::StatusOr<GatewayPart>(const std::string& caller)> part_of = nullptr;
  std::shared_ptr<GatewaySessions> sessions = std::make_shared<GatewaySessions>();
  std::shared_ptr<GatewayCounts> counts = std::make_shared<GatewayCounts>();
  Duration open_timeout = std::chrono::seconds(30);
  Duration close_timeout = std::chrono::seconds(2);
};

// The reactor of one call; deletes itself. `sources`, `threads` and `options` outlive it; a session
// takes one of `threads`, and is refused (kResourceExhausted, TOO_MANY_SESSIONS) when none is free
// or its tenant has all that it may have, and (kUnavailable, WORKER_LOST) when the gateway leaves.
grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* ServeForward(
    const StreamCall& call, SourcePool* sources, ThreadPool* threads,
    const GatewayOptions* options);

}  // namespace switchyard
