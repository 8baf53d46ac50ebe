#include "coordinator/progress/rate_meter.h"

#include <algorithm>

namespace switchyard {
namespace {

// Reports come about twice a second. When they fail to come, the time since the last one counts as
// a time in which nothing moved.
constexpr Duration kLate = std::chrono::seconds(2);
constexpr double kLeftMax = 30. * 24 * 3600;  // seconds

double SecondsOf(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void RateMeter::Add(std::int64_t count, TimePoint now) {
  if (!samples_.empty() && count < samples_.back().count) samples_.clear();
  if (samples_.empty() || count != samples_.back().count) moved_at_ = now;
  if (samples_.size() >= 2 && now - samples_[samples_.size() - 2].at < kSpacing) {
    samples_.back() = {now, count};
  } else {
    samples_.push_back({now, count});
  }
  // The first one is the last that is not within the window, so that the window is covered.
  while (samples_.size() > 2 && samples_[1].at <= now - kWindow) samples_.pop_front();
}

std::int64_t RateMeter::PerSecond(TimePoint now) const {
  if (samples_.size() < 2 || now - moved_at_ >= kWindow) return 0;
  const Sample& last = samples_.back();
  const TimePoint end = now - last.at > kLate ? now : last.at;
  const double seconds = SecondsOf(end - samples_.front().at);
  if (seconds <= 0) return 0;
  return static_cast<std::int64_t>(static_cast<double>(last.count - samples_.front().count) /
                                   seconds);
}

std::optional<Duration> RateMeter::Left(std::int64_t total, TimePoint now) const {
  const std::int64_t rate = PerSecond(now);
  if (rate <= 0) return std::nullopt;
  const double seconds =
      static_cast<double>(std::max<std::int64_t>(0, total - count())) / static_cast<double>(rate);
  if (seconds > kLeftMax) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Duration RateMeter::Still(TimePoint now) const {
  return samples_.empty() ? Duration::zero() : std::max(Duration::zero(), now - moved_at_);
}

}  // namespace switchyard
