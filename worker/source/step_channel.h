// The seam of the gateway binding: steps as bytes through one worker, which is the source on its
// caller's behalf.
//
// A stream is one session. Open is answered first; then steps and answers, answers in any order,
// each exactly once, and news of the session among them. At most `credits` steps of GatewayGrant
// may be outstanding. Sinks as in session_channel.h. The caller's bytes are copied before Submit
// returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

// The session that the gateway opened, and the caller's limits.
struct GatewayGrant {
  SessionGrant grant;  // cookie cleared: it never leaves the gateway
  std::uint32_t credits = 1;
  std::string worker_id;  // the gateway
};

// News says what has changed about an open session.
struct GatewayNews {
  // The plan that its steps run on now, as the gateway follows the deployment's epochs.
  std::optional<PlanUpdate> plan;
  // The gateway is about to end. It takes no new session, and goes on with this one until its steps
  // are done; a caller has to open another one, through another gateway.
  bool leaving = false;
};

// One step. Spans are valid during Submit only.
struct GatewayStep {
  StepId step;  // the caller's number, repeated in the answer
  LayerId layer;
  std::int32_t tokens = 0;
  std::span<const std::byte> x;       // BF16 [tokens, hidden], dense
  std::span<const std::int32_t> ids;  // [tokens, top_k]
  std::span<const float> weights;     // [tokens, top_k]
  Duration deadline{};                // from its arrival at the gateway; 0: the session's
};

// Receives the gateway's answers.
class StepSink {
 public:
  virtual ~StepSink() = default;
  // The first call, unless OnEnded comes instead.
  virtual void OnOpened(const GatewayGrant& grant) = 0;
  virtual void OnNews(const GatewayNews& news) = 0;
  // `y` is [tokens, hidden] in the session's y_dtype; empty when `status` is not OK.
  virtual void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) = 0;
  // The last call, once. Steps without an answer have failed with it.
  virtual void OnEnded(const absl::Status& why) = 0;
};

// An open stream; its destructor ends it, and with it the session.
class StepStream {
 public:
  virtual ~StepStream() = default;
  // After an error nothing was sent: kUnavailable when the stream has ended; kInvalidArgument
  // (MESSAGE_TOO_LARGE) naming the limit.
  virtual absl::Status Submit(const GatewayStep& step) = 0;
};

// Thread-safe.
class StepChannel {
 public:
  virtual ~StepChannel() = default;
  // Opens a session at the worker `gateway`, "host:port". Does not block; the answer and every
  // failure come through `sink`.
  virtual std::unique_ptr<StepStream> Open(const std::string& gateway,
                                           const OpenSessionRequest& request, StepSink* sink) = 0;
};

}  // namespace switchyard
