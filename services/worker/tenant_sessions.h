// The sessions that tenants may have through one gateway: each takes a thread, and one tenant must
// leave threads to the others. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "core/base/mutex.h"
#include "core/tenants/tenant.h"

namespace switchyard {

// The sessions of one tenant.
class SessionPlaces {
 public:
  explicit SessionPlaces(std::size_t most) : most_(most) {}
  SessionPlaces(const SessionPlaces&) = delete;
  SessionPlaces& operator=(const SessionPlaces&) = delete;

  // False: all are taken. Each that is taken has to be left.
  bool Take() {
    const MutexLock lock(mutex_);
    if (taken_ >= most_) return false;
    ++taken_;
    return true;
  }
  void Leave() {
    const MutexLock lock(mutex_);
    --taken_;
  }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  const std::size_t most_;
  Mutex mutex_;
  std::size_t taken_ SY_GUARDED_BY(mutex_) = 0;
};

class TenantSessions {
 public:
  // `all` is how many the gateway takes; a tenant gets half of them, at least one.
  explicit TenantSessions(std::size_t all) : each_(std::max<std::size_t>(all / 2, 1)) {}

  // Those that the callers of `tenant` share while one of them has a stream. Null for a caller
  // without a tenant: it may take all.
  std::shared_ptr<SessionPlaces> Of(const Tenant* tenant) {
    if (tenant == nullptr) return nullptr;
    const MutexLock lock(mutex_);
    std::erase_if(places_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<SessionPlaces>& known = places_[tenant->name];
    std::shared_ptr<SessionPlaces> places = known.lock();
    if (places == nullptr) {
      places = std::make_shared<SessionPlaces>(each_);
      known = places;
    }
    return places;
  }

 private:
  const std::size_t each_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<SessionPlaces>> places_ SY_GUARDED_BY(mutex_);  // by name
};

}  // namespace switchyard
