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
  streams_[stream] = {.use = std::move(use)};
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
  std::vector<std::pair<Stream*, absl::Status>> revoked;
  std::vector<Stream*> cut;
  {
    const MutexLock lock(mutex_);
    for (auto& [stream, entry] : streams_) {
      if (entry.revoked_at == TimePoint()) {
        absl::Status allowed = CheckCall(*table, entry.use.caller, entry.use.method);
        if (allowed.ok()) continue;
        entry.revoked_at = now;
        revoked.emplace_back(stream, std::move(allowed));
      } else if (!entry.cut && now - entry.revoked_at >= kCutAfter) {
        entry.cut = true;
        cut.push_back(stream);
      }
    }
  }
  for (const auto& [stream, why] : revoked) {
    Call(stream, [why = &why](Stream* it) { it->Revoke(*why); });
  }
  for (Stream* stream : cut) {
    Call(stream, [](Stream* it) { it->Cut(); });
  }
}

// Not under the lock: gRPC may begin another call on this thread meanwhile, whose stream is added.
template <typename Act>
void StreamGuard::Call(Stream* stream, Act act) {
  {
    const MutexLock lock(mutex_);
    const auto at = streams_.find(stream);
    if (at == streams_.end()) return;
    at->second.busy = true;
  }
  act(stream);
  const MutexLock lock(mutex_);
  streams_.at(stream).busy = false;
  changed_.NotifyAll();
}

}  // namespace switchyard
