#include "worker/collective/expert/work_meter.h"

#include <array>
#include <chrono>
#include <utility>

namespace switchyard {
namespace {

// As often as rows are reported (worker/expert/load_meter.h).
constexpr Duration kReportEvery = std::chrono::seconds(1);

constexpr std::array kModes{DispatchMode::kNormal, DispatchMode::kLowLatency};
constexpr std::array kDtypes{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                             DispatchDtype::kNvfp4};
constexpr std::array kPaths{LinkPath::kMapped, LinkPath::kMessages, LinkPath::kInProcess};
static_assert(kModes.size() == kDispatchModes && kDtypes.size() == kDispatchDtypes &&
              kPaths.size() == ExpertTimes::kPaths);

WorkTimes TimesOf(const ExpertTimes& experts, WorkClass of, WorkKind kind) {
  WorkTimes times{.kind = kind};
  for (const DispatchMode mode : kModes) {
    times.queue.Add(experts.Of(of, mode).dispatch.Counts());
    times.step.Add(experts.Of(of, mode).own.Counts());
    for (const DispatchDtype dtype : kDtypes) {
      for (const LinkPath path : kPaths) {
        times.step.Add(experts.Request(of, mode, dtype, path).Counts());
      }
    }
  }
  return times;
}

}  // namespace

std::vector<WorkTimes> TotalWorkTimes(const ExpertTimes& experts, const GroupCounts* groups) {
  std::vector<WorkTimes> all{TimesOf(experts, WorkClass::kDecode, WorkKind::kDecode),
                             TimesOf(experts, WorkClass::kPrefill, WorkKind::kPrefill)};
  if (groups != nullptr) {
    all.push_back({.kind = WorkKind::kLockstep,
                   .step = groups->step.Counts(),
                   .queue = groups->exchange.peer_wait.Counts()});
  }
  std::erase_if(all, IsEmpty);
  return all;
}

std::vector<WorkTimes> WorkMeter::Take(std::vector<WorkTimes> total, TimePoint now) {
  const MutexLock lock(mutex_);
  if (now < next_) return {};
  next_ = now + kReportEvery;
  std::vector<WorkTimes> since = TimesSince(reported_, total);
  reported_ = std::move(total);
  return since;
}

}  // namespace switchyard
