// Client ends of streams on gRPC's callback API.
//
// A stream is owned by itself until gRPC is done with it and by a handle of its user. Hooks (OnUp,
// OnResponse, OnEnded) come one at a time; after Detach has returned none comes any more, so that
// the user's sink may go. Detach may be called from within a hook. It must not be called with a
// lock that a hook takes.
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

// What reading and writing client streams have in common. `Reactor` is gRPC's base class.
template <typename Reactor, typename Response>
class ClientStream : public Reactor {
 public:
  // `calls` outlives the stream.
  explicit ClientStream(CallsInFlight* calls) : calls_(calls) {}
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // No more hooks; the call is cancelled.
  void Detach() {
    const bool inside_a_hook = hook_thread_.load() == std::this_thread::get_id();
    if (inside_a_hook) {
      hooks_.AssertHeld();
      attached_ = false;
    } else {
      const MutexLock lock(hooks_);
      attached_ = false;
    }
    context_.TryCancel();
  }

  void OnReadInitialMetadataDone(bool ok) final {
    if (ok) RunHook([this] { TellUp(); });
  }
  void OnReadDone(bool ok) final {
    if (!ok) return OnReadsEnded();
    absl::Status status;
    RunHook([this, &status] {
      TellUp();
      status = OnResponse(response_);
    });
    if (!status.ok()) Fail(status);
    this->StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) final {
    const absl::Status local = LocalError();
    RunHook([this, &status, &local] {
      hooks_.AssertHeld();
      attached_ = false;
      OnEnded(local.ok() ? StatusFromGrpc(status) : local);
    });
    CallsInFlight* const calls = calls_;
    std::exchange(self_, nullptr).reset();  // the last use of `this`
    calls->Leave();
  }

 protected:
  ~ClientStream() override = default;

  grpc::ClientContext* context() { return &context_; }
  // Starts reading and the call, which has been made on the stub with context() and this.
  void Launch(std::shared_ptr<void> self) {
    self_ = std::move(self);
    calls_->Enter();
    this->StartRead(&response_);
    this->StartCall();
  }
  // Ends the call; OnEnded gets `status`. The first call counts.
  void Fail(const absl::Status& status) {
    {
      const MutexLock lock(error_);  // not hooks_: the caller may hold what a hook waits for
      if (local_error_.ok()) local_error_ = status;
    }
    context_.TryCancel();
  }

  // The server has accepted the call; once, before any response.
  virtual void OnUp() {}
  // A status that is not OK ends the call with it.
  virtual absl::Status OnResponse(Response& response) = 0;
  // Once, last.
  virtual void OnEnded(const absl::Status& status) = 0;
  // Not a hook: the server sends no more.
  virtual void OnReadsEnded() {}

 private:
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
  void TellUp() {
    hooks_.AssertHeld();  // in a hook
    if (!std::exchange(up_, true)) OnUp();
  }

  CallsInFlight* const calls_;
  grpc::ClientContext context_;
  Response response_;
  std::shared_ptr<void> self_;
  Mutex hooks_;
  std::atomic<std::thread::id> hook_thread_;
  bool attached_ SY_GUARDED_BY(hooks_) = true;
  bool up_ SY_GUARDED_BY(hooks_) = false;
  Mutex error_;
  absl::Status local_error_ SY_GUARDED_BY(error_);
};

// A stream in both directions, with one bounded queue of writes.
template <typename Request, typename Response>
class ClientBidiStream : public ClientStream<grpc::ClientBidiReactor<Request, Response>, Response> {
 public:
  ClientBidiStream(CallsInFlight* calls, std::size_t queue_bytes_max)
      : ClientStream<grpc::ClientBidiReactor<Request, Response>, Response>(calls),
        queue_(kStreamQueueMessagesMax, queue_bytes_max) {}

  // Any thread. False when the stream has ended or does not take it; a server that does not read
  // ends it (kResourceExhausted, NO_CREDITS).
  bool Write(Request request) {
    switch (queue_.Push(std::move(request))) {
      case WriteQueue<Request>::Verdict::kStart:
        this->StartWrite(queue_.front());
        return true;
      case WriteQueue<Request>::Verdict::kQueued:
        return true;
      case WriteQueue<Request>::Verdict::kFull:
        this->Fail(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                             "the peer does not read its stream; dial again"));
        return false;
      case WriteQueue<Request>::Verdict::kClosed:
        return false;
    }
    SY_UNREACHABLE("a verdict that is none");
  }

  void OnWriteDone(bool ok) final {
    if (!ok) queue_.Close(/*drop_waiting=*/true);
    const auto next = queue_.Advance();
    if (next.write != nullptr) this->StartWrite(next.write);
    if (next.finish) this->RemoveHold();
  }

 protected:
  // The hold keeps gRPC from being done with the stream while Write may still be called on it; the
  // queue says who gives it back.
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
