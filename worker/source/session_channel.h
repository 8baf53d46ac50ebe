// The seam through which a source reaches the coordinator and the workers' control side: open and
// watch a session, attach to a worker, bind and release epochs, read counters.
//
// Implementations: gRPC (services/channels) and in process (services/in_process); tests and the
// simulation bring their own. Sinks are called from the channel's threads, one call at a time
// for each stream, and must return quickly. Destroying a stream object ends the stream; when the
// destructor has returned, its sink is not called any more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/session_messages.h"

namespace switchyard {

// Receives the plans of one session.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  // `update.plan` is committed on every worker of it. Epochs grow.
  virtual void OnPlan(const PlanUpdate& update) = 0;
  // The last call, once: the coordinator is gone or ended the watch.
  virtual void OnWatchEnded(const absl::Status& why) = 0;
};

// An open watch; its destructor ends it.
class WatchStream {
 public:
  virtual ~WatchStream() = default;
};

// Receives one worker's answers.
class AttachSink {
 public:
  virtual ~AttachSink() = default;
  // The answer to Attach, first and once, unless the stream ends before.
  virtual void OnAttached(const AttachGrant& grant) = 0;
  // The answer to one Bind, in order.
  virtual void OnBound(Epoch epoch, const absl::Status& result) = 0;
  // The last call, once: refused, closed by the worker, or the worker is gone.
  virtual void OnAttachEnded(const absl::Status& why) = 0;
};

// An open attachment; its destructor ends it. No call blocks.
class AttachStream {
 public:
  virtual ~AttachStream() = default;
  // Answered by OnBound.
  virtual void Bind(const BindRequest& request) = 0;
  // Not answered.
  virtual void Release(const ReleaseRequest& request) = 0;
};

// Receives one worker's answers to a source of a group (core/group_messages.h).
class GroupStreamSink {
 public:
  virtual ~GroupStreamSink() = default;
  // First and once, unless the stream ends before.
  virtual void OnJoined(const JoinAnswer& answer) = 0;
  virtual void OnSourceKeys(const SourceKeys& keys) = 0;
  virtual void OnReady() = 0;
  virtual void OnBound(Epoch epoch, const absl::Status& result) = 0;
  // The last call, once: refused, the group has ended, or the worker is gone.
  virtual void OnGroupEnded(const absl::Status& why) = 0;
};

// A source's open place in a group at one worker; its destructor ends the group. No call blocks.
class GroupStream {
 public:
  virtual ~GroupStream() = default;
  virtual void SendKeys(const GroupKeys& keys) = 0;
  virtual void Bind(const BindRequest& request) = 0;
  virtual void Release(const ReleaseRequest& request) = 0;
};

// A worker's own account of one session.
struct SessionCounters {
  std::string worker_id;
  std::vector<AttachmentCounters> attachments;
};

class SessionChannel {
 public:
  virtual ~SessionChannel() = default;

  // Blocks at most `timeout`. Errors as CoordinatorService.OpenSession; kUnavailable
  // (COORDINATOR_LOST) when it cannot be reached.
  virtual absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                                   Duration timeout) = 0;
  virtual absl::Status CloseSession(SessionId session, Duration timeout) = 0;
  // Neither of these two blocks. A failure to connect comes through the sink.
  virtual std::unique_ptr<WatchStream> Watch(const WatchRequest& request, WatchSink* sink) = 0;
  virtual std::unique_ptr<AttachStream> Attach(const std::string& endpoint,
                                               const AttachRequest& request, AttachSink* sink) = 0;
  // As Attach.
  virtual std::unique_ptr<GroupStream> JoinGroup(const std::string& endpoint,
                                                 const JoinRequest& request, GroupStreamSink* sink);
  // Blocks at most `timeout`. NOT_FOUND (UNKNOWN_SESSION) when the worker holds no such session.
  virtual absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint,
                                                      SessionId session, Duration timeout) = 0;
};

}  // namespace switchyard
