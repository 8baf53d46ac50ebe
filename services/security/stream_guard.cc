#include "services/security/stream_guard.h"

#include <utility>
#include <vector>

#include "services/security/access.h"

namespace switchyard {

StreamGuard::~StreamGuard() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.join();
}

void StreamGuard::Add(Stream* stream, Use use) {
  const MutexLock lock(mutex_);
  streams_[stream] = {.use = std::move(use), .serial = ++last_serial_};
  // Clients have no streams to guard, and so no thread.
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void StreamGuard::Remove(Stream* stream) {
  const MutexLock lock(mutex_);
  auto at = streams_.find(stream);
  while (at != streams_.end() && at->second.busy) {
    changed_.Wait(mutex_);
    at = streams_.find(stream);
  }
  if (at != streams_.end()) streams_.erase(at);
}

void StreamGuard::Run() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      const TimePoint until = std::chrono::steady_clock::now() + interval_;
      while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
      }
      if (stopping_) return;
    }
    Look(std::chrono::steady_clock::now());
  }
}

void StreamGuard::Look(TimePoint now) {
  // Without the lock, because it reads a file.
  const std::shared_ptr<const IdentityTable> table = identities_->Now();
  std::vector<Found> revoked;
  std::vector<Found> cut;
  {
    const MutexLock lock(mutex_);
    for (auto& [stream, entry] : streams_) {
      if (entry.revoked_at == TimePoint()) {
        absl::Status allowed = CheckCall(*table, entry.use.caller, entry.use.method);
        if (allowed.ok()) {
          entry.denied_by = nullptr;
        } else if (entry.denied_by == nullptr) {
          entry.denied_by = table;
        } else if (entry.denied_by != table) {
          entry.revoked_at = now;
          revoked.push_back({stream, entry.serial, std::move(allowed)});
        }
      } else if (!entry.cut && now - entry.revoked_at >= kCutAfter) {
        entry.cut = true;
        cut.push_back({stream, entry.serial});
      }
    }
  }
  for (const Found& found : revoked) {
    Call(found, [&found](Stream* stream) { stream->Revoke(found.why); });
  }
  for (const Found& found : cut) {
    Call(found, [](Stream* stream) { stream->Cut(); });
  }
}

// Not under the lock: gRPC may begin another call on this thread meanwhile, whose stream is added.
template <typename Act>
void StreamGuard::Call(const Found& found, Act act) {
  {
    const MutexLock lock(mutex_);
    const auto at = streams_.find(found.stream);
    if (at == streams_.end() || at->second.serial != found.serial) return;
    at->second.busy = true;
  }
  act(found.stream);
  const MutexLock lock(mutex_);
  streams_.at(found.stream).busy = false;
  changed_.NotifyAll();
}

}  // namespace switchyard
