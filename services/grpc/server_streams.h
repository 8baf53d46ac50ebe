// Server ends of streams on gRPC's callback API, with one bounded queue of writes each.
//
// Write and End may be called from any thread, also from within a callback, until OnStreamDone has
// returned; after it the object deletes itself. A peer that does not read loses its stream
// (kResourceExhausted, NO_CREDITS).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/write_queue.h"

namespace switchyard {

// What reading and writing server streams have in common. `Reactor` is gRPC's base class.
template <typename Reactor, typename Response>
class ServerStream : public Reactor {
 public:
  ServerStream(grpc::CallbackServerContext* context, std::size_t queue_bytes_max)
      : context_(context), queue_(kStreamQueueMessagesMax, queue_bytes_max) {}

  void Write(Response message) {
    switch (queue_.Push(std::move(message))) {
      case WriteQueue<Response>::Verdict::kStart:
        this->StartWrite(queue_.front());
        break;
      case WriteQueue<Response>::Verdict::kFull:
        End(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                      "the peer does not read its stream; dial again"));
        context_->TryCancel();  // What is being written may never be done.
        break;
      case WriteQueue<Response>::Verdict::kQueued:
      case WriteQueue<Response>::Verdict::kClosed:
        break;
    }
  }

  // Ends the stream with `status` once what was written before is on its way. The first call
  // counts.
  void End(const absl::Status& status) {
    {
      const MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
      status_ = status;
    }
    if (queue_.Close(/*drop_waiting=*/false)) FinishNow();
  }

  // Between the two the stream is not finished and its object stays. False: it has ended.
  bool Hold() { return queue_.Hold(); }
  void Release() {
    if (queue_.Release()) FinishNow();
  }

  void OnWriteDone(bool ok) final {
    if (!ok) {
      End(absl::CancelledError("the peer is gone"));
      queue_.Close(/*drop_waiting=*/true);
    }
    const auto next = queue_.Advance();
    if (next.write != nullptr) this->StartWrite(next.write);
    if (next.finish) FinishNow();
  }
  void OnCancel() final { End(absl::CancelledError("the peer is gone")); }
  void OnDone() final {
    OnStreamDone();
    delete this;
  }

 protected:
  // Nothing happens on the stream any more; the last call.
  virtual void OnStreamDone() = 0;
  [[nodiscard]] bool ended() { return queue_.closed(); }

 private:
  void FinishNow() {
    absl::Status status;
    {
      const MutexLock lock(mutex_);
      status = status_;
    }
    this->Finish(StatusToGrpc(status));
  }

  grpc::CallbackServerContext* const context_;
  WriteQueue<Response> queue_;
  Mutex mutex_;
  bool ended_ SY_GUARDED_BY(mutex_) = false;
  absl::Status status_ SY_GUARDED_BY(mutex_);
};

// A stream in both directions. Call BeginReading once, from the constructor or later.
template <typename Request, typename Response>
class ServerBidiStream : public ServerStream<grpc::ServerBidiReactor<Request, Response>, Response> {
 public:
  struct Limits {
    std::size_t request_bytes_max = kControlMessageBytesMax;
    std::size_t queue_bytes_max = kStreamQueueBytesMax;
  };
  ServerBidiStream(grpc::CallbackServerContext* context, const Limits& limits)
      : ServerStream<grpc::ServerBidiReactor<Request, Response>, Response>(context,
                                                                           limits.queue_bytes_max),
        request_bytes_max_(limits.request_bytes_max) {}

  void OnReadDone(bool ok) final {
    if (!ok || !this->Hold()) return OnPeerDone();
    const absl::Status size = CheckMessageSize(request_, request_bytes_max_);
    if (size.ok()) return OnRequest(request_);
    this->End(size);
    ReadNext();
  }

 protected:
  void BeginReading() { this->StartRead(&request_); }
  // One request, which stays as it is until ReadNext: to be called once for each OnRequest, from
  // any thread, also after End. The stream does not go away before.
  virtual void OnRequest(Request& request) = 0;
  void ReadNext() {
    this->ended() ? OnPeerDone() : this->StartRead(&request_);
    this->Release();
  }
  // No request comes any more: the peer half-closed or is gone, or the stream has ended. On the
  // thread that read last.
  virtual void OnPeerDone() { this->End(absl::OkStatus()); }

 private:
  const std::size_t request_bytes_max_;
  Request request_;
};

}  // namespace switchyard
