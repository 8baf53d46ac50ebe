// The messages of one gRPC stream on their way out: one is being written, the others wait.
//
// gRPC allows one outstanding StartWrite, and no Finish beside it. The queue decides which caller
// may do what, outside of any lock:
//
//   Push  -> kStart: StartWrite(front())             OnWriteDone -> Advance() -> write or finish
//   Close -> true: finish now; false: Advance() or Release() will say finish
//
// Whoever is at work for the stream holds it (Hold, Release): it is not finished meanwhile, so that
// its object stays. Exactly one caller is ever told to finish. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace switchyard {

template <typename Message>
class WriteQueue {
 public:
  enum class Verdict { kStart, kQueued, kFull, kClosed };
  struct Next {
    const Message* write = nullptr;  // start writing this
    bool finish = false;             // all is written and the queue is closed
  };

  WriteQueue(std::size_t messages_max, std::size_t bytes_max)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // kFull: the message was not taken; a message is always taken when nothing waits.
  Verdict Push(Message message) {
    const std::size_t bytes = message.ByteSizeLong();
    const MutexLock lock(mutex_);
    if (closed_) return Verdict::kClosed;
    const bool waiting = messages_.size() > 1;
    if (messages_.size() > messages_max_ || (waiting && bytes_ + bytes > bytes_max_)) {
      return Verdict::kFull;
    }
    bytes_ += bytes;
    messages_.push_back(std::move(message));
    return messages_.size() == 1 ? Verdict::kStart : Verdict::kQueued;
  }

  // The message being written; stays where it is until Advance.
  const Message* front() {
    const MutexLock lock(mutex_);
    SY_CHECK(!messages_.empty(), "no message is being written");
    return &messages_.front();
  }

  // The message being written is done.
  Next Advance() {
    const MutexLock lock(mutex_);
    SY_CHECK(!messages_.empty(), "no message is being written");
    bytes_ -= messages_.front().ByteSizeLong();
    messages_.pop_front();
    if (!messages_.empty()) return {&messages_.front(), false};
    return {nullptr, closed_ && holds_ == 0};
  }

  // False when the queue is closed: the stream may be gone at any moment.
  bool Hold() {
    const MutexLock lock(mutex_);
    if (!closed_) ++holds_;
    return !closed_;
  }
  // Of one Hold. True: the caller finishes.
  bool Release() {
    const MutexLock lock(mutex_);
    SY_CHECK(holds_ > 0, "Release() without Hold()");
    --holds_;
    return closed_ && holds_ == 0 && messages_.empty();
  }
  [[nodiscard]] bool closed() {
    const MutexLock lock(mutex_);
    return closed_;
  }

  // Takes no more messages; those that wait are still written, unless `drop_waiting`. True when
  // nothing is being written, nobody holds the stream and this call was the first: the caller
  // finishes.
  bool Close(bool drop_waiting) {
    const MutexLock lock(mutex_);
    if (drop_waiting) {
      while (messages_.size() > 1) {
        bytes_ -= messages_.back().ByteSizeLong();
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
  std::deque<Message> messages_ SY_GUARDED_BY(mutex_);
  std::size_t bytes_ SY_GUARDED_BY(mutex_) = 0;
  std::size_t holds_ SY_GUARDED_BY(mutex_) = 0;
  bool closed_ SY_GUARDED_BY(mutex_) = false;
};

}  // namespace switchyard
