#include "coordinator/quarantine.h"

#include <algorithm>

namespace switchyard {
namespace {

constexpr int kStrikesToExclude = 2;

}  // namespace

void Quarantine::Strike(const std::string& worker, const std::string& why, TimePoint now) {
  Strikes& strikes = strikes_[worker];
  ++strikes.count;
  strikes.last_at = now;
  strikes.why = why;
  if (strikes.count < kStrikesToExclude) return;
  // The loop stops at the limit, so that the duration cannot overflow however often it fails.
  Duration exclusion = options_->quarantine_first;
  for (int i = kStrikesToExclude; i < strikes.count && exclusion < options_->quarantine_last; ++i) {
    exclusion *= 2;
  }
  strikes.excluded_until = now + std::min(exclusion, options_->quarantine_last);
}

bool Quarantine::EndExclusions(TimePoint now) {
  bool ended = false;
  for (auto& [worker, strikes] : strikes_) {
    if (!strikes.excluded_until || now < *strikes.excluded_until) continue;
    strikes.excluded_until.reset();
    ended = true;
  }
  return ended;
}

void Quarantine::ForgetOld(TimePoint now) {
  std::erase_if(strikes_, [&](const auto& entry) {
    const Strikes& strikes = entry.second;
    return !strikes.excluded_until && now - strikes.last_at > options_->quarantine_last;
  });
}

bool Quarantine::IsExcluded(const std::string& worker, TimePoint now) const {
  const auto it = strikes_.find(worker);
  return it != strikes_.end() && it->second.excluded_until && now < *it->second.excluded_until;
}

std::string Quarantine::ReasonFor(const std::string& worker) const {
  const auto it = strikes_.find(worker);
  return it == strikes_.end() ? std::string() : it->second.why;
}

}  // namespace switchyard
