#include "services/worker/gateway_sessions.h"

#include <algorithm>
#include <utility>

namespace switchyard {
namespace {

TimePoint Now() { return SteadyClock().Now(); }

}  // namespace

bool GatewaySessions::Enter(Session* session) {
  const MutexLock lock(mutex_);
  if (leaving_) return false;
  sessions_.insert(session);
  return true;
}

void GatewaySessions::Exit(Session* session) {
  const MutexLock lock(mutex_);
  sessions_.erase(session);
  changed_.NotifyAll();
}

std::size_t GatewaySessions::open() const {
  const MutexLock lock(mutex_);
  return sessions_.size();
}

void GatewaySessions::BeginStep() {
  const MutexLock lock(mutex_);
  ++steps_;
  last_step_ = Now();
}

void GatewaySessions::EndStep() {
  const MutexLock lock(mutex_);
  --steps_;
  last_step_ = Now();
  if (leaving_) changed_.NotifyAll();
}

void GatewaySessions::Leave() {
  const MutexLock lock(mutex_);
  if (std::exchange(leaving_, true)) return;
  // The callers need time to hear of it.
  last_step_ = Now();
  for (Session* session : sessions_) session->OnLeaving();
}

void GatewaySessions::WaitUntilDone(Duration idle, TimePoint until) {
  const MutexLock lock(mutex_);
  while (!sessions_.empty()) {
    const TimePoint now = Now();
    const TimePoint quiet_at = last_step_ + idle;
    if (now >= until || (steps_ == 0 && now >= quiet_at)) return;
    changed_.WaitUntil(mutex_, steps_ == 0 ? std::min(until, quiet_at) : until);
  }
}

}  // namespace switchyard
