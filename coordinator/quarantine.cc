#include "coordinator/quarantine.h"

#include <algorithm>

namespace switchyard {
namespace {

// The second failure in a row: the first may be a passing cause, a third would cost another time-
// out of up to prepare_timeout.
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
  // The strikes are kept, so that a worker that fails again is excluded at once and for longer.
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
    // An exclusion that EndExclusions has not seen yet must not vanish silently: its end makes the
    // deployment plan again.
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
