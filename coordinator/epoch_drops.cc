#include "coordinator/epoch_drops.h"

#include <iterator>

#include "absl/strings/str_format.h"

#include "core/control_messages.h"

namespace switchyard {

HeldEpochs::iterator EpochDrops::Drop(Member& member, HeldEpochs::iterator hold, bool retire,
                                      TimePoint now) {
  const Epoch epoch = hold->first.epoch;
  if (!retire) {
    members_->Send(member, Abort{deployment_, epoch});
    return member.holds.erase(hold);
  }
  hold->second.state = HoldState::kRetireSent;
  hold->second.retired_at = now;
  members_->Send(member, switchyard::Retire{deployment_, epoch});
  return std::next(hold);
}

void EpochDrops::DropUnwanted(const EpochRule& rule, bool urgent,
                              absl::FunctionRef<bool(Epoch)> held_back, TimePoint now) {
  for (auto& [id, member] : members_->members()) {
    // Without a stream nothing can be sent; the worker reports what it holds when it is back.
    if (!member.connected()) continue;
    for (const EpochRule::Drop& drop : rule.DropsOf(member.holds)) {
      if (drop.retire && held_back(drop.key.epoch)) continue;
      Drop(member, member.holds.find(drop.key), drop.retire, now);
    }
    UrgeRetire(member, urgent, now);
  }
}

void EpochDrops::DropAll(TimePoint now) {
  for (auto& [id, member] : members_->members()) {
    if (!member.connected()) continue;
    for (auto hold = member.holds.begin(); hold != member.holds.end();) {
      const bool ours = hold->first.deployment == deployment_;
      if (!ours || hold->second.state == HoldState::kRetireSent) {
        ++hold;
      } else {
        hold = Drop(member, hold, hold->second.state >= HoldState::kCommitSent, now);
      }
    }
    UrgeRetire(member, /*urgent=*/true, now);
  }
}

void EpochDrops::UrgeRetire(Member& member, bool urgent, TimePoint now) {
  for (auto& [key, hold] : member.holds) {
    if (key.deployment != deployment_ || hold.state != HoldState::kRetireSent) continue;
    if (hold.free_by != TimePoint::max()) continue;
    if (!urgent && now < hold.retired_at + options_->retire_patience) continue;
    hold.free_by = now + options_->urgent_retire + options_->stuck_retire;
    members_->Send(member, switchyard::Retire{deployment_, key.epoch, options_->urgent_retire});
  }
}

std::string EpochDrops::FirstHeld() const {
  for (const auto& [id, member] : members_->members()) {
    for (const auto& [key, hold] : member.holds) {
      if (key.deployment != deployment_) continue;
      return absl::StrFormat("%s to free epoch %d", id, key.epoch.value);
    }
  }
  return "";
}

}  // namespace switchyard
