// Client sides of streams on gRPC's callback API.
//
// A stream is owned by its user's handle and, until gRPC is done with it, by itself. Hooks (OnUp,
// OnResponse, OnEnded) run one at a time. After Detach has returned, no hook runs, so the user may
// destroy its sink. Detach may be called from within a hook, but not while holding a lock that a
// hook takes.
//
//   ClientStream      reads: WatchPlan
//     ClientBidiStream  reads and writes: Session, Attach, Forward
//
// A subclass implements the hooks and starts the call on its stub. Errors come only with OnEnded.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "services/grpc/calls_in_flight.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/write_queue.h"

namespace switchyard {

// Base of reading and of bidirectional client streams. `Reactor` is gRPC's base class.
template <typename Reactor, typename Response>
class ClientStream : public Reactor {  // NOLINT(cppcoreguidelines-virtual-class-destructor)
 public:
  // `calls` must outlive the stream.
  explicit ClientStream(CallsInFlight* calls) : calls_(calls) {}
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // Stops the hooks and cancels the call. Idempotent.
  void Detach() {
    if (hook_thread_.load() == std::this_thread::get_id()) {
      hooks_.AssertHeld();  // A hook on this thread holds it; locking again would deadlock.
      attached_ = false;
    } else {
      const MutexLock lock(hooks_);
      attached_ = false;
    }
    context_.TryCancel();
  }

  void OnReadInitialMetadataDone(bool ok) final {
    // Not all servers send their initial metadata before the first message, so OnReadDone calls
    // NotifyUp too.
    if (ok) RunHook([this] { NotifyUp(); });
  }
  void OnReadDone(bool ok) final {
    if (!ok) return OnReadsEnded();
    absl::Status status;
    RunHook([this, &status] {
      NotifyUp();
      status = OnResponse(response_);
    });
    if (!status.ok()) Fail(status);
    // The next read starts even after an error: gRPC completes a call only after its last read.
    this->StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) final {
    // A local error (an invalid response, a full queue) explains more than gRPC's CANCELLED.
    const absl::Status local = LocalError();
    RunHook([this, &status, &local] {
      hooks_.AssertHeld();
      attached_ = false;
      OnEnded(local.ok() ? StatusFromGrpc(status) : local);
    });
    // Copied, because the next line can destroy this object.
    CallsInFlight* const calls = calls_;
    std::exchange(self_, nullptr).reset();  // may destroy `this`
    calls->Leave();
  }

 protected:
  ~ClientStream() override = default;

  grpc::ClientContext* context() { return &context_; }
  // Starts the call and reads. The stub's method must have been called with context() and this.
  void Launch(std::shared_ptr<void> self) {
    // Before the call starts: gRPC may complete it before StartCall returns.
    self_ = std::move(self);
    calls_->Enter();
    this->StartRead(&response_);
    this->StartCall();
  }
  // Ends the call; OnEnded receives `status`. Only the first call has an effect.
  void Fail(const absl::Status& status) {
    {
      const MutexLock lock(error_);  // not hooks_: the caller may hold what a hook waits for
      if (local_error_.ok()) local_error_ = status;
    }
    context_.TryCancel();
  }

  // The server has accepted the call. Called at most once, before any response.
  virtual void OnUp() {}
  // Handles one response. An error ends the call with that status.
  virtual absl::Status OnResponse(Response& response) = 0;
  // The last hook; called exactly once unless the stream was detached.
  virtual void OnEnded(const absl::Status& status) = 0;
  // The server sends no more messages. Not a hook: called even after Detach.
  virtual void OnReadsEnded() {}

 private:
  // The recorded thread lets Detach recognize a call from within a hook, which must not lock again.
  template <typename Body>
  void RunHook(Body body) {
    const MutexLock lock(hooks_);
    if (!attached_) return;
    hook_thread_.store(std::this_thread::get_id());
    body();
    hook_thread_.store(std::thread::id());
  }
  absl::Status LocalError() {
    const MutexLock lock(error_);
    return local_error_;
  }
  void NotifyUp() {
    hooks_.AssertHeld();  // in a hook
    if (!std::exchange(up_, true)) OnUp();
  }

  CallsInFlight* const calls_;
  grpc::ClientContext context_;
  // The current read; gRPC fills it between StartRead and OnReadDone.
  Response response_;
  // Keeps the stream alive until OnDone, because gRPC calls back after the user has released it.
  std::shared_ptr<void> self_;
  // Held while a hook runs. Detach takes it to wait for a running hook on another thread.
  Mutex hooks_;
  std::atomic<std::thread::id> hook_thread_;
  bool attached_ SY_GUARDED_BY(hooks_) = true;
  bool up_ SY_GUARDED_BY(hooks_) = false;
  // Apart from hooks_, so that Fail can be called from within a hook and from any other thread.
  Mutex error_;
  absl::Status local_error_ SY_GUARDED_BY(error_);
};

// A bidirectional stream with a bounded queue of writes.
template <typename Request, typename Response>
class ClientBidiStream : public ClientStream<grpc::ClientBidiReactor<Request, Response>, Response> {
 public:
  ClientBidiStream(CallsInFlight* calls, std::size_t queue_bytes_max)
      : ClientStream<grpc::ClientBidiReactor<Request, Response>, Response>(calls),
        queue_(kStreamQueueMessagesMax, queue_bytes_max) {}

  // Callable from any thread. False if the stream has ended or its queue is full. A full queue ends
  // the stream (kResourceExhausted, NO_CREDITS), because the server does not read.
  bool Write(Request request) {
    switch (queue_.Push(std::move(request))) {
      case WriteQueue<Request>::Verdict::kStart:
        this->StartWrite(queue_.front());
        return true;
      case WriteQueue<Request>::Verdict::kQueued:
        return true;
      case WriteQueue<Request>::Verdict::kFull:
        this->Fail(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                             "the peer does not read its stream; reconnect"));
        return false;
      case WriteQueue<Request>::Verdict::kClosed:
        return false;
    }
    SY_UNREACHABLE("a verdict that is none");
  }

  void OnWriteDone(bool ok) final {
    // A failed write means that the stream is broken, so the waiting messages cannot be sent.
    if (!ok) queue_.Close(/*drop_waiting=*/true);
    const auto next = queue_.Advance();
    if (next.write != nullptr) this->StartWrite(next.write);
    if (next.finish) this->RemoveHold();
  }

 protected:
  // The hold keeps gRPC from completing the stream while Write may still be called. The queue
  // decides which caller releases it, so that this happens exactly once.
  void LaunchBidi(std::shared_ptr<void> self) {
    this->AddHold();
    this->Launch(std::move(self));
  }

 private:
  void OnReadsEnded() final {
    if (queue_.Close(/*drop_waiting=*/true)) this->RemoveHold();
  }

  WriteQueue<Request> queue_;
};

}  // namespace switchyard
