#include "services/system/health_monitor.h"

#include <utility>

namespace switchyard {

HealthMonitor::HealthMonitor(std::function<Health()> look, Duration every)
    : look_(std::move(look)), every_(every), thread_([this] { Run(); }) {}

HealthMonitor::~HealthMonitor() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

Health HealthMonitor::Look() {
  const MutexLock lock(mutex_);
  return LookNow();
}

Health HealthMonitor::LookNow() {
  Health health = look_();
  const bool same = health.live() == last_.live() && health.ready() == last_.ready();
  last_ = health;
  if (publish_ && !same) publish_(health);
  return health;
}

void HealthMonitor::Publish(std::function<void(const Health&)> publish) {
  const MutexLock lock(mutex_);
  last_ = look_();
  publish(last_);
  publish_ = std::move(publish);
}

void HealthMonitor::Run() {
  const MutexLock lock(mutex_);
  while (!stopping_) {
    LookNow();
    const TimePoint next = SteadyClock().Now() + every_;
    while (!stopping_ && changed_.WaitUntil(mutex_, next)) {
    }
  }
}

}  // namespace switchyard
