// The seam through which a worker's agent reaches the coordinator: one stream at a time.
//
// Implementations: gRPC (services/grpc_channels) and in process (services/in_process); tests and
// the simulation bring their own. A sink is called from the channel's threads, one call at a time,
// and must return quickly. Destroying the stream ends it; when the destructor has returned, its
// sink is not called any more.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "core/control_messages.h"

namespace switchyard {

class AgentStreamSink {
 public:
  virtual ~AgentStreamSink() = default;
  // The coordinator has been reached; once, before any message.
  virtual void OnUp() = 0;
  virtual void OnMessage(CoordinatorMessage message) = 0;
  // Told once, last: it could not be reached, has ended the stream (`why` as it said) or is gone.
  virtual void OnDown(const absl::Status& why) = 0;
};

class AgentStream {
 public:
  virtual ~AgentStream() = default;
  // Does not block. Messages of one stream arrive in order; those of a stream that has broken are
  // lost without a word, OnDown tells.
  virtual void Send(const WorkerMessage& message) = 0;
};

class AgentChannel {
 public:
  virtual ~AgentChannel() = default;
  // Does not block; a failure to connect comes through OnDown. `sink` outlives the stream.
  virtual std::unique_ptr<AgentStream> Open(AgentStreamSink* sink) = 0;
};

}  // namespace switchyard
