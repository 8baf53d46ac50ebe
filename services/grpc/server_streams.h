// Server sides of streams on gRPC's callback API, each with a bounded queue of writes.
//
// Write and End may be called from any thread, including from within a callback, until OnStreamDone
// has returned. Then the object deletes itself. If the queue is full because the peer does not
// read, the stream ends (kResourceExhausted, NO_CREDITS).
//
//   ServerStream      writes: WatchPlan
//     ServerBidiStream  reads and writes: Session, Attach, Forward
//
// Reads are held back until the subclass calls ReadNext; writes are bounded by the queue. So a slow
// or hostile peer can neither exhaust the memory nor block a thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/write_queue.h"
#include "services/security/caller.h"
#include "services/security/stream_guard.h"

namespace switchyard {

// One call of a method that streams.
struct StreamCall {
  grpc::CallbackServerContext* context = nullptr;  // gRPC's; exists until OnDone
  // Ends the stream when its caller may not call `method` any more. Null: callers are not known.
  StreamGuard* guard = nullptr;
  const char* method = "";
};

// Base of writing and of bidirectional server streams. `Reactor` is gRPC's base class.
template <typename Reactor, typename Response>
class ServerStream : public Reactor, private StreamGuard::Stream {
 public:
  // `queue_bytes_max` bounds waiting messages.
  ServerStream(const StreamCall& call, std::size_t queue_bytes_max)
      : call_(call), queue_(kStreamQueueMessagesMax, queue_bytes_max) {}

  // Queues `message`. Ignored after the stream has ended.
  void Write(Response message) {
    switch (queue_.Push(std::move(message))) {
      case WriteQueue<Response>::Verdict::kStart:
        this->StartWrite(queue_.front());
        break;
      // A client that does not read would make the queue grow without limit.
      case WriteQueue<Response>::Verdict::kFull:
        End(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                      "the peer does not read its stream; reconnect"));
        Cut();  // Otherwise the current write may never complete.
        break;
      case WriteQueue<Response>::Verdict::kQueued:
      case WriteQueue<Response>::Verdict::kClosed:
        break;
    }
  }

  // Ends the stream with `status` after the messages that were written before. Only the first call
  // has an effect.
  void End(const absl::Status& status) {
    {
      // The first status wins: a later one is mostly a consequence of it.
      const MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
      status_ = status;
    }
    // Finish may only follow the last write; the queue says whether that is already done.
    if (queue_.Close(/*drop_waiting=*/false)) FinishNow();
  }

  // Between Hold and Release the stream is not finished and its object is not deleted. Hold returns
  // false if the stream has ended.
  bool Hold() { return queue_.Hold(); }
  void Release() {
    if (queue_.Release()) FinishNow();
  }

  // gRPC's callbacks, each on one of its threads.
  void OnWriteDone(bool ok) final {
    if (!ok) {
      End(absl::CancelledError("the peer has disconnected"));
      queue_.Close(/*drop_waiting=*/true);
    }
    const auto next = queue_.Advance();
    OnMessageWritten();
    if (next.write != nullptr) this->StartWrite(next.write);
    if (next.finish) FinishNow();
  }
  void OnCancel() final { End(absl::CancelledError("the peer has disconnected")); }
  // gRPC owns no reactor; each one deletes itself after its last callback.
  void OnDone() final {
    if (call_.guard != nullptr) call_.guard->Remove(this);
    OnStreamDone();
    delete this;
  }

 protected:
  // The oldest message that was passed to Write is with gRPC, or failed, and its memory is free.
  // Not called for messages that were never begun because the stream had ended.
  virtual void OnMessageWritten() {}
  // The last call: nothing more happens on the stream.
  virtual void OnStreamDone() = 0;
  // The stream has been ended, because its caller may not have it any more. For those that hold it
  // while they wait for something else. Called on the guard's thread; must not block.
  virtual void OnRevoked() {}
  // Call it once, in the handler.
  void BeginGuard() {
    if (call_.guard == nullptr) return;
    call_.guard->Add(this, {.caller = caller(), .method = call_.method});
  }
  // The verified id of who calls; empty without TLS.
  [[nodiscard]] std::string caller() const { return CallerOf(*call_.context); }
  // Whether End was called or the peer is gone. A hint only: it can change at any moment.
  [[nodiscard]] bool ended() { return queue_.closed(); }

 private:
  // Calls Finish, which gRPC permits once. The queue decides which caller gets here.
  void FinishNow() {
    absl::Status status;
    {
      const MutexLock lock(mutex_);
      status = status_;
    }
    this->Finish(StatusToGrpc(status));
  }

  void Revoke(const absl::Status& why) final {
    End(why);
    OnRevoked();
  }
  void Cut() final { call_.context->TryCancel(); }

  const StreamCall call_;
  // Decides which of the callers of End, OnWriteDone and Release finishes the stream.
  WriteQueue<Response> queue_;
  Mutex mutex_;
  bool ended_ SY_GUARDED_BY(mutex_) = false;
  absl::Status status_ SY_GUARDED_BY(mutex_);
};

// A bidirectional stream. Call BeginReading once, in the constructor or later. The next request is
// read only after ReadNext, so that a slow service slows down its client.
template <typename Request, typename Response>
class ServerBidiStream : public ServerStream<grpc::ServerBidiReactor<Request, Response>, Response> {
 public:
  // A service may have lower limits than its port.
  struct Limits {
    std::size_t request_bytes_max = kControlMessageBytesMax;
    std::size_t queue_bytes_max = kStreamQueueBytesMax;
  };
  ServerBidiStream(const StreamCall& call, const Limits& limits)
      : ServerStream<grpc::ServerBidiReactor<Request, Response>, Response>(call,
                                                                           limits.queue_bytes_max),
        request_bytes_max_(limits.request_bytes_max) {}

  void OnReadDone(bool ok) final {
    if (!ok || !this->Hold()) return OnPeerDone();
    // The size is checked here again, because gRPC's limit is for the whole port.
    const absl::Status size = CheckMessageSize(request_, request_bytes_max_);
    if (size.ok()) return OnRequest(request_);
    this->End(size);
    ReadNext();
  }

 protected:
  // Starts the first read. Not in the constructor, because a subclass may not be complete then.
  void BeginReading() {
    this->BeginGuard();
    this->StartRead(&request_);
  }
  // Handles one request. The request does not change and the stream is not deleted until ReadNext,
  // which must be called once for each OnRequest, from any thread, even after End.
  virtual void OnRequest(Request& request) = 0;
  void ReadNext() {
    // The hold that OnReadDone took is released last, so this object exists until here.
    this->ended() ? OnPeerDone() : this->StartRead(&request_);
    this->Release();
  }
  // No more requests will arrive: the peer half-closed or is gone, or the stream has ended. Called
  // on the thread of the last read.
  virtual void OnPeerDone() { this->End(absl::OkStatus()); }

 private:
  // At most the port's own limit.
  const std::size_t request_bytes_max_;
  // Only one request is in memory for each stream, because the next read starts after ReadNext.
  Request request_;
};

}  // namespace switchyard
