#include "core/placement_map.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status BadPlacement(LayerId layer, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrFormat("placement of layer %d: %s", layer.value, what),
                   {{"layer", absl::StrCat(layer.value)}});
}

}  // namespace

// Two sorted copies with offsets instead of maps: both lookups are on the path of every step.
PlacementMap::PlacementMap(const LayerPlacement& placement, std::int32_t experts,
                           std::int32_t workers)
    : experts_(experts), workers_(workers) {
  by_expert_ = placement.experts;
  std::sort(by_expert_.begin(), by_expert_.end());
  by_worker_ = placement.experts;
  std::sort(by_worker_.begin(), by_worker_.end(),
            [](const PhysicalExpert& a, const PhysicalExpert& b) {
              return a.worker != b.worker ? a.worker < b.worker : a.slot < b.slot;
            });
  // Prefix sums of the counts: the entries of key i are [begin[i], begin[i + 1]).
  const auto begins = [](const std::vector<PhysicalExpert>& sorted, std::int32_t count, auto key) {
    std::vector<std::int32_t> begin(static_cast<std::size_t>(count) + 1, 0);
    for (const PhysicalExpert& p : sorted) ++begin[static_cast<std::size_t>(key(p)) + 1];
    for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    return begin;
  };
  expert_begin_ =
      begins(by_expert_, experts, [](const PhysicalExpert& p) { return p.expert.value; });
  worker_begin_ =
      begins(by_worker_, workers, [](const PhysicalExpert& p) { return p.worker.value; });
}

std::span<const PhysicalExpert> PlacementMap::Replicas(ExpertId expert) const {
  // Router output was checked before; an id out of range here is a bug and would read foreign
  // memory.
  SY_CHECK(expert.value >= 0 && expert.value < experts_, "an expert of another layer");
  const auto i = static_cast<std::size_t>(expert.value);
  return std::span(by_expert_)
      .subspan(static_cast<std::size_t>(expert_begin_[i]),
               static_cast<std::size_t>(expert_begin_[i + 1] - expert_begin_[i]));
}

std::span<const PhysicalExpert> PlacementMap::OnWorker(WorkerOrdinal worker) const {
  SY_CHECK(worker.value >= 0 && worker.value < workers_, "a worker of another plan");
  const auto i = static_cast<std::size_t>(worker.value);
  return std::span(by_worker_)
      .subspan(static_cast<std::size_t>(worker_begin_[i]),
               static_cast<std::size_t>(worker_begin_[i + 1] - worker_begin_[i]));
}

absl::Status ValidatePlacement(const LayerPlacement& placement, std::int32_t experts,
                               std::int32_t workers) {
  // Sets and not bitmaps: slot numbers come from outside and may be as large as they like.
  std::set<std::pair<std::int32_t, std::int32_t>> slots;
  // Two replicas on one worker would both be named for one row, which is then computed twice (I5).
  std::set<std::pair<std::int32_t, std::int32_t>> homes;
  std::vector<std::int32_t> replicas(static_cast<std::size_t>(experts), 0);
  std::vector<std::int32_t> slots_of(static_cast<std::size_t>(workers), 0);
  for (const PhysicalExpert& p : placement.experts) {
    if (p.expert.value < 0 || p.expert.value >= experts) {
      return BadPlacement(placement.layer, absl::StrFormat("expert %d of %d does not exist",
                                                           p.expert.value, experts));
    }
    if (p.worker.value < 0 || p.worker.value >= workers) {
      return BadPlacement(placement.layer, absl::StrFormat("worker ordinal %d of %d does not exist",
                                                           p.worker.value, workers));
    }
    if (!slots.insert({p.worker.value, p.slot.value}).second) {
      return BadPlacement(placement.layer, absl::StrFormat("slot %d of worker ordinal %d holds two "
                                                           "experts",
                                                           p.slot.value, p.worker.value));
    }
    if (!homes.insert({p.worker.value, p.expert.value}).second) {
      return BadPlacement(placement.layer,
                          absl::StrFormat("expert %d has two slots on worker ordinal %d",
                                          p.expert.value, p.worker.value));
    }
    ++replicas[static_cast<std::size_t>(p.expert.value)];
    ++slots_of[static_cast<std::size_t>(p.worker.value)];
  }
  // Slots are distinct by now, so they are dense exactly when none reaches the worker's count.
  for (const auto& [worker, slot] : slots) {
    if (slot < 0 || slot >= slots_of[static_cast<std::size_t>(worker)]) {
      return BadPlacement(placement.layer,
                          absl::StrFormat("slots of worker ordinal %d are not dense", worker));
    }
  }
  for (std::size_t e = 0; e < replicas.size(); ++e) {
    if (replicas[e] == 0) {
      return BadPlacement(placement.layer, absl::StrFormat("expert %d is on no worker", e));
    }
  }
  // `slots` has the same entries in ascending order.
  const bool sorted = std::equal(slots.begin(), slots.end(), placement.experts.begin(),
                                 [](const auto& slot, const PhysicalExpert& p) {
                                   return slot == std::pair(p.worker.value, p.slot.value);
                                 });
  if (!sorted) {
    return BadPlacement(placement.layer, "its list is not sorted by (worker, slot)");
  }
  return absl::OkStatus();
}

}  // namespace switchyard
