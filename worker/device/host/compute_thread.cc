#include "worker/device/host/compute_thread.h"

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "worker/device/host/futex.h"

namespace switchyard {
namespace {

// Long enough that a burst of decode steps is not interrupted, short enough that prefill moves on.
constexpr int kDecodeInARowMax = 16;
constexpr int kSpins = 1000;  // about 30 us of pauses: the next batch of a busy worker comes sooner
constexpr Duration kSleep = std::chrono::milliseconds(100);
// Other devices answer within some 100 us if they do at all; a rank that is late costs little CPU.
constexpr int kSpinsOfLook = 20;
constexpr Duration kFirstNap = std::chrono::microseconds(20);
constexpr Duration kLongestNap = std::chrono::milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeThread>> ComputeThread::Create() {
  std::unique_ptr<ComputeThread> compute(new ComputeThread);
  try {
    compute->thread_ = std::thread([raw = compute.get()] { raw->Loop(); });
    // The one exception of the standard library that a limit of the system can raise here.
  } catch (const std::system_error& error) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("the compute thread could not be started (", error.what(),
                                  "); raise the limit of threads of this process"));
  }
  return compute;
}

ComputeThread::~ComputeThread() {
  stopping_.store(true);
  Notify();
  if (thread_.joinable()) thread_.join();
}

void ComputeThread::Add(HostStream* stream) {
  const MutexLock lock(mutex_);
  // Sorted by class, so that Pick meets decode streams first.
  const auto later = std::find_if(members_.begin(), members_.end(), [stream](const Member& member) {
    return member.stream->work_class() > stream->work_class();
  });
  members_.insert(later, {.stream = stream});
}

void ComputeThread::Remove(HostStream* stream) {
  for (;;) {
    const std::uint32_t seen = notified_.load();
    {
      const MutexLock lock(mutex_);
      const auto at = std::find_if(
          members_.begin(), members_.end(),
          [stream](const Member& member) { return member.stream == stream && !member.running; });
      if (at != members_.end()) {
        members_.erase(at);
        return;
      }
    }
    // The thread is about to leave the stream: its work is done already.
    FutexWait(notified_, seen, std::chrono::milliseconds(1));
  }
}

void ComputeThread::Notify() {
  // Sequentially consistent, as the loop's store of asleep_ and its load of notified_: one of the
  // two sides sees the other, so no wake is lost.
  notified_.fetch_add(1);
  if (asleep_.load()) FutexWakeAll(notified_);
}

void ComputeThread::Loop() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    // Read before looking for work: a notification that comes later changes it, and the sleep ends
    // at once.
    const std::uint32_t seen = notified_.load();
    if (RunOne(/*decode_only=*/false)) {
      nap_ = kFirstNap;
    } else {
      Idle(seen);
    }
  }
}

void ComputeThread::Idle(std::uint32_t seen) {
  // Some of it may have become ready since RunOne looked.
  const bool work_waits = AnyWork();
  for (int spin = 0; spin < kSpins; ++spin) {
    SpinPause();
    if (notified_.load(std::memory_order_acquire) != seen) return;
    if (work_waits && spin % kSpinsOfLook == 0 && AnyReady()) return;
  }
  const Duration sleep = work_waits ? nap_ : kSleep;
  if (work_waits) nap_ = std::min(2 * nap_, kLongestNap);
  asleep_.store(true);
  if (notified_.load() == seen) FutexWait(notified_, seen, sleep);
  asleep_.store(false);
}

bool ComputeThread::RunOne(bool decode_only) {
  HostStream* stream = Pick(decode_only);
  if (stream == nullptr) return false;
  const bool decode = stream->work_class() == WorkClass::kDecode;
  decode_in_a_row_ = decode ? decode_in_a_row_ + 1 : 0;
  // A decode run is short: nothing is let into it, which also bounds the nesting. What is let into
  // one of another class has an end, so that its run has one too.
  stream->PerformOldest({.waits = [this, decode] { return !decode && DecodeWaits(); },
                         .run =
                             [this] {
                               for (int i = 0; i < kDecodeInARowMax && RunOne(true); ++i) {
                               }
                             }});
  PutBack(stream);
  return true;
}

bool ComputeThread::DecodeWaits() {
  const MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.stream->work_class() == WorkClass::kDecode && !member.running &&
           member.stream->ready();
  });
}

bool ComputeThread::AnyReady() {
  const MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.stream->ready(); });
}

bool ComputeThread::AnyWork() {
  const MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.stream->has_work(); });
}

HostStream* ComputeThread::Pick(bool decode_only) {
  const MutexLock lock(mutex_);
  const bool others_turn = !decode_only && decode_in_a_row_ >= kDecodeInARowMax;
  Member* first = nullptr;
  Member* other = nullptr;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    // From the one after the last, so that streams of a class take turns.
    Member& member = members_[(last_ + 1 + i) % members_.size()];
    // The call between two passes of a run must not pick that run's own stream.
    if (member.running || !member.stream->ready()) continue;
    const WorkClass of = member.stream->work_class();
    if (of != WorkClass::kDecode && other == nullptr) other = &member;
    if (decode_only && of != WorkClass::kDecode) continue;
    if (first == nullptr || of < first->stream->work_class()) first = &member;
  }
  if (others_turn && other != nullptr) first = other;
  if (first == nullptr) return nullptr;
  first->running = true;
  last_ = static_cast<std::size_t>(first - members_.data());
  return first->stream;
}

void ComputeThread::PutBack(HostStream* stream) {
  const MutexLock lock(mutex_);
  for (Member& member : members_) {
    if (member.stream == stream) member.running = false;
  }
}

}  // namespace switchyard
