// The seam between a worker's agent and the coordinator: one bidirectional stream at a time.
//
// Implementations: gRPC (services/channels) and in process (services/in_process); tests and the
// simulation have their own. A sink is called from the channel's threads, one call at a time, and
// must return quickly because it may hold up other streams. Destroying the stream ends it; after
// the destructor has returned, the sink is not called any more.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "core/control_messages.h"

namespace switchyard {

class AgentStreamSink {
 public:
  virtual ~AgentStreamSink() = default;
  // The coordinator has been reached. Called at most once, before any message.
  virtual void OnUp() = 0;
  // Messages arrive in the order in which the coordinator sent them.
  virtual void OnMessage(CoordinatorMessage message) = 0;
  // The last call, made exactly once: the connection failed, broke, or was ended by the coordinator
  // with the status `why`.
  virtual void OnDown(const absl::Status& why) = 0;
};

class AgentStream {
 public:
  virtual ~AgentStream() = default;
  // Does not block. Messages of one stream arrive in order. A message on a broken stream is lost
  // without an error here, because the caller learns of the break from OnDown in any case.
  virtual void Send(const WorkerMessage& message) = 0;
};

class AgentChannel {
 public:
  virtual ~AgentChannel() = default;
  // Does not block; OnDown reports a failure to connect. `sink` must outlive the stream.
  virtual std::unique_ptr<AgentStream> Open(AgentStreamSink* sink) = 0;
};

}  // namespace switchyard
