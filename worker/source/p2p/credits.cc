#include "worker/source/p2p/credits.h"

#include <algorithm>

namespace switchyard {

CreditTable::CreditTable(std::uint32_t pairs, MutantId mutant)
    : mutant_(mutant), slots_(pairs), free_(pairs) {}

std::optional<std::uint32_t> CreditTable::Send(const PairKey& key) {
  if (free_ == 0) return std::nullopt;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != State::kFree) continue;
    slots_[i] = {State::kSent, key, {}};
    --free_;
    return static_cast<std::uint32_t>(i);
  }
  return std::nullopt;
}

CreditTable::Answer CreditTable::Accept(std::uint32_t pair, const PairKey& key) {
  Slot& slot = slots_[pair];
  if (SY_MUTANT(mutant_, kReplyAcceptedTwice) && slot.state == State::kAnswered) Free(slot);
  const bool waited_for = slot.state == State::kSent || slot.state == State::kGivenUp;
  if (!waited_for || !(slot.key == key)) return Answer::kUnexpected;
  if (slot.state == State::kGivenUp) {
    if (!SY_MUTANT(mutant_, kLateReplyForgotten)) Free(slot);
    return Answer::kLate;
  }
  slot.state = State::kAnswered;
  return Answer::kAccepted;
}

void CreditTable::Release(std::uint32_t pair) { Free(slots_[pair]); }

void CreditTable::GiveUp(std::uint32_t pair, TimePoint now) {
  Slot& slot = slots_[pair];
  if (slot.state == State::kAnswered) return Free(slot);
  if (slot.state != State::kSent) return;
  slot.state = State::kGivenUp;
  slot.given_up = now;
}

std::optional<TimePoint> CreditTable::OldestGivenUp() const {
  std::optional<TimePoint> oldest;
  for (const Slot& slot : slots_) {
    if (slot.state != State::kGivenUp) continue;
    oldest = oldest.has_value() ? std::min(*oldest, slot.given_up) : slot.given_up;
  }
  return oldest;
}

void CreditTable::Free(Slot& slot) {
  if (slot.state == State::kFree) return;
  slot.state = State::kFree;
  ++free_;
}

}  // namespace switchyard
