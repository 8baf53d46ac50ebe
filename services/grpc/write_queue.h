// The outbound messages of one gRPC stream: one is being written, the others wait.
//
// gRPC allows one outstanding StartWrite and no Finish at the same time. The queue decides which
// caller makes the next gRPC call; the caller makes it without holding a lock, because gRPC may
// call back immediately:
//
//   Push  -> kStart: StartWrite(front())             OnWriteDone -> Advance() -> write or finish
//   Close -> true: finish now; false: a later Advance() or Release() returns finish
//
// Code that works on the stream holds it (Hold, Release). A held stream is not finished, so its
// object exists. Exactly one caller gets the result "finish". Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "grpcpp/support/byte_buffer.h"

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace switchyard {

// Size of a message, and of one that is encoded already.
template <typename Message>
std::size_t EncodedBytes(const Message& message) {
  return message.ByteSizeLong();
}
inline std::size_t EncodedBytes(const grpc::ByteBuffer& message) { return message.Length(); }

// Messages are moved in and handed to gRPC by pointer, so a large step is not copied.
template <typename Message>
class WriteQueue {
 public:
  // The duty of Push's caller: start a write, nothing, end the stream, or drop its message.
  enum class Verdict { kStart, kQueued, kFull, kClosed };
  // The duty of Advance's caller. At most one of the two is set.
  struct Next {
    const Message* write = nullptr;  // start writing this
    bool finish = false;             // everything is written and the queue is closed
  };

  // Limits for the messages that wait, in number and in bytes.
  WriteQueue(std::size_t messages_max, std::size_t bytes_max)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // Adds a message. kFull: it was not added. A message is always accepted if none waits, so that a
  // single message over the limit does not end the stream.
  Verdict Push(Message message) {
    // Before the lock, because it walks the whole message.
    const std::size_t bytes = EncodedBytes(message);
    const MutexLock lock(mutex_);
    if (closed_) return Verdict::kClosed;
    // The first message is with gRPC and does not count as waiting.
    const bool waiting = messages_.size() > 1;
    if (messages_.size() > messages_max_ || (waiting && bytes_ + bytes > bytes_max_)) {
      return Verdict::kFull;
    }
    bytes_ += bytes;
    messages_.push_back(std::move(message));
    return messages_.size() == 1 ? Verdict::kStart : Verdict::kQueued;
  }

  // The message being written. The pointer is valid until Advance: a deque does not move elements.
  const Message* front() {
    const MutexLock lock(mutex_);
    SY_CHECK(!messages_.empty(), "no message is being written");
    return &messages_.front();
  }

  // Removes the message that has been written and returns the next action.
  Next Advance() {
    const MutexLock lock(mutex_);
    SY_CHECK(!messages_.empty(), "no message is being written");
    bytes_ -= EncodedBytes(messages_.front());
    messages_.pop_front();
    if (!messages_.empty()) return {&messages_.front(), false};
    return {nullptr, closed_ && holds_ == 0};
  }

  // False if the queue is closed; the stream may then be deleted at any moment.
  bool Hold() {
    const MutexLock lock(mutex_);
    if (!closed_) ++holds_;
    return !closed_;
  }
  // Ends one Hold. True: the caller must finish the stream. While messages are left it is false,
  // and the last Advance returns finish.
  bool Release() {
    const MutexLock lock(mutex_);
    SY_CHECK(holds_ > 0, "Release() without Hold()");
    --holds_;
    return closed_ && holds_ == 0 && messages_.empty();
  }
  // Whether Close was called. A hint only, unless the caller holds the stream.
  [[nodiscard]] bool closed() {
    const MutexLock lock(mutex_);
    return closed_;
  }

  // Stops accepting messages. Waiting ones are still written unless `drop_waiting`. True if the
  // caller must finish the stream: no write is in progress, no hold exists and this is the first
  // call.
  bool Close(bool drop_waiting) {
    const MutexLock lock(mutex_);
    if (drop_waiting) {
      while (messages_.size() > 1) {
        bytes_ -= EncodedBytes(messages_.back());
        messages_.pop_back();
      }
    }
    const bool first = !std::exchange(closed_, true);
    return first && holds_ == 0 && messages_.empty();
  }

 private:
  const std::size_t messages_max_;
  const std::size_t bytes_max_;
  Mutex mutex_;
  // The front is being written, unless the queue is empty.
  std::deque<Message> messages_ SY_GUARDED_BY(mutex_);
  std::size_t bytes_ SY_GUARDED_BY(mutex_) = 0;
  // Hold calls without their Release.
  std::size_t holds_ SY_GUARDED_BY(mutex_) = 0;
  bool closed_ SY_GUARDED_BY(mutex_) = false;
};

}  // namespace switchyard
