#include "coordinator/members/held_epochs.h"

#include <algorithm>

namespace switchyard {
namespace {

// Number and hash: a worker may hold another plan under the same number, from a coordinator whose
// store was lost. Such a plan is not this one.
bool IsPlan(const PlanUpdate* update, const EpochKey& key, const Hold& hold) {
  return update != nullptr && key.epoch == update->plan.epoch &&
         key.deployment == update->plan.deployment && hold.hash == update->hash;
}

}  // namespace

bool EpochRule::IsWanted(const EpochKey& key, const Hold& hold) const {
  return IsPlan(serving_, key, hold) || IsPlan(changing_, key, hold) || IsPlan(former_, key, hold);
}

// Committed under a coordinator whose store was lost. Once a plan serves here, it replaces them.
bool EpochRule::IsInherited(const EpochKey& key, const Hold& hold) const {
  return serving_ == nullptr && key.deployment == deployment_ &&
         hold.state == HoldState::kCommitted && !IsPlan(changing_, key, hold);
}

std::vector<EpochRule::Drop> EpochRule::DropsOf(const HeldEpochs& holds) const {
  Epoch inherited;
  for (const auto& [key, hold] : holds) {
    if (IsInherited(key, hold)) inherited = key.epoch;  // Ascending, so that the newest is kept.
  }
  std::vector<Drop> drops;
  for (const auto& [key, hold] : holds) {
    if (key.deployment != deployment_ || key.epoch == inherited || IsWanted(key, hold)) continue;
    // RETIRE is sent once: the stream delivers it, and a worker that registers again reports what
    // it holds, which starts over.
    if (hold.state == HoldState::kRetireSent) continue;
    // From COMMIT on the worker may be serving the epoch, even if its answer has not arrived.
    drops.push_back({key, hold.state >= HoldState::kCommitSent});
  }
  return drops;
}

bool EpochRule::HasRoom(const HeldEpochs& holds) const {
  return std::none_of(holds.begin(), holds.end(), [this](const auto& entry) {
    const auto& [key, hold] = entry;
    return key.deployment == deployment_ && !IsInherited(key, hold) && !IsWanted(key, hold);
  });
}

std::optional<Epoch> EpochRule::BlockingEpoch(const HeldEpochs& holds) const {
  bool has_inherited = false;
  for (const auto& [key, hold] : holds) {
    if (key.deployment != deployment_ || IsPlan(serving_, key, hold)) continue;
    // One inherited epoch takes the place of the serving one; a second one has no place.
    if (has_inherited || !IsInherited(key, hold)) return key.epoch;
    has_inherited = true;
  }
  return std::nullopt;
}

}  // namespace switchyard
