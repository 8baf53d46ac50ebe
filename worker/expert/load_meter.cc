#include "worker/expert/load_meter.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace switchyard {
namespace {

// More often nobody looks.
constexpr Duration kReportEvery = std::chrono::seconds(1);

}  // namespace

void LoadMeter::Activate(const EpochRuntime& runtime) {
  Held held{.deployment = runtime.deployment(), .epoch = runtime.epoch(), .layers = {}};
  for (const LayerRuntime& layer : runtime.layers) {
    if (layer.load == nullptr) continue;
    Layer one{.layer = layer.layer, .experts = {}, .reported = {}, .load = layer.load};
    for (const ExpertSlot& slot : layer.slots) one.experts.push_back(slot.expert);
    one.reported.assign(one.experts.size(), 0);
    held.layers.push_back(std::move(one));
  }
  const MutexLock lock(mutex_);
  held_.push_back(std::move(held));
}

void LoadMeter::Drop(absl::string_view deployment, Epoch epoch) {
  const MutexLock lock(mutex_);
  for (Held& held : held_) {
    if (held.deployment == deployment && held.epoch == epoch) held.dropped = true;
  }
}

void LoadMeter::Read(Layer* layer, std::size_t* room, LoadReport* report) {
  for (std::size_t slot = 0; slot < layer->experts.size() && *room > 0; ++slot) {
    const std::uint32_t rows = layer->load->Rows(slot);
    const std::uint32_t served = rows - layer->reported[slot];
    if (served == 0) continue;
    layer->reported[slot] = rows;
    report->experts.push_back(
        {.layer = layer->layer, .expert = layer->experts[slot], .rows = served});
    --*room;
  }
}

std::vector<LoadReport> LoadMeter::Take(TimePoint now) {
  const MutexLock lock(mutex_);
  if (now < next_) return {};
  next_ = now + kReportEvery;
  std::vector<LoadReport> reports;
  std::size_t room = kLoadExpertsMax;
  for (Held& held : held_) {
    if (reports.size() == kLoadReportsMax) break;
    LoadReport report{.deployment = held.deployment, .epoch = held.epoch, .experts = {}};
    for (Layer& layer : held.layers) Read(&layer, &room, &report);
    if (!report.experts.empty()) reports.push_back(std::move(report));
  }
  // The epoch that found no room is first the next time.
  if (room == 0) std::rotate(held_.begin(), held_.begin() + 1, held_.end());
  if (room > 0) {
    held_.erase(std::remove_if(held_.begin(), held_.end(), [](const Held& h) { return h.dropped; }),
                held_.end());
  }
  return reports;
}

}  // namespace switchyard
