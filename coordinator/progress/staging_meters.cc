#include "coordinator/progress/staging_meters.h"

#include <algorithm>
#include <utility>

#include "core/base/name.h"

namespace switchyard {
namespace {

bool IsSane(const StagingReport& report) {
  return report.deployment.size() <= kNameMax && report.experts_done >= 0 &&
         report.experts_done <= report.experts && report.bytes_done >= 0 &&
         report.bytes_done <= report.bytes;
}

}  // namespace

void StagingMeters::Update(const std::vector<StagingReport>& reports, TimePoint now) {
  std::vector<Metered> next;
  for (const StagingReport& report : reports) {
    if (next.size() == kStagingReportsMax) break;
    if (!IsSane(report)) continue;
    const Metered* known = Find({report.deployment, report.epoch});
    next.push_back({report, known == nullptr ? RateMeter() : known->bytes});
    next.back().bytes.Add(report.bytes_done, now);
  }
  all_ = std::move(next);
}

const StagingMeters::Metered* StagingMeters::Find(const EpochKey& key) const {
  const auto at = std::find_if(all_.begin(), all_.end(), [&key](const Metered& one) {
    return one.report.epoch == key.epoch && one.report.deployment == key.deployment;
  });
  return at == all_.end() ? nullptr : &*at;
}

const StagingMeters::Metered* StagingMeters::Loading() const {
  const auto at =
      std::find_if(all_.begin(), all_.end(), [](const Metered& one) { return !one.complete(); });
  return at == all_.end() ? nullptr : &*at;
}

}  // namespace switchyard
