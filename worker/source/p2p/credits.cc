#include "worker/source/p2p/credits.h"

#include <algorithm>

namespace switchyard {

CreditTable::CreditTable(std::uint32_t credits) : slots_(credits), free_(credits) {}

std::optional<std::uint32_t> CreditTable::Reserve() {
  if (free_ == 0) return std::nullopt;
  // A table has few slots, so that a search is cheaper than a list of the free ones.
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != State::kFree) continue;
    slots_[i].state = State::kReserved;
    --free_;
    return static_cast<std::uint32_t>(i);
  }
  return std::nullopt;
}

void CreditTable::Send(std::uint32_t credit, const ChunkKey& key) {
  slots_[credit] = {State::kSent, key, ++sent_, {}};
}

CreditTable::Answer CreditTable::Accept(std::uint32_t credit, const ChunkKey& key, TimePoint now) {
  Slot& slot = slots_[credit];
  // A kAnswered slot takes no second reply: its rows are being read where they lie.
  const bool waited_for = slot.state == State::kSent || slot.state == State::kGivenUp;
  if (!waited_for || !(slot.key == key)) return Answer::kUnexpected;
  NoteAnswered(slot.order, now);
  if (slot.state == State::kGivenUp) {
    // The worker has written its slot for the last time, so the credit can be used again.
    Free(slot);
    return Answer::kLate;
  }
  slot.state = State::kAnswered;
  return Answer::kAccepted;
}

void CreditTable::Release(std::uint32_t credit) { Free(slots_[credit]); }

void CreditTable::GiveUp(std::uint32_t credit, TimePoint now) {
  Slot& slot = slots_[credit];
  // An answered slot has nothing to come.
  if (slot.state == State::kAnswered) return Free(slot);
  // Already given up: the time of the first counts, or a stuck worker would never be noticed.
  if (slot.state != State::kSent) return;
  slot.state = State::kGivenUp;
  slot.owed_since = now;
}

// A reply to what was sent later is no such sign: it may have overtaken a reply that is lost.
void CreditTable::NoteAnswered(std::uint64_t order, TimePoint now) {
  for (Slot& slot : slots_) {
    if (slot.state == State::kGivenUp && slot.order > order) slot.owed_since = now;
  }
}

std::optional<TimePoint> CreditTable::OwedSince() const {
  std::optional<TimePoint> oldest;
  for (const Slot& slot : slots_) {
    if (slot.state != State::kGivenUp) continue;
    oldest = oldest.has_value() ? std::min(*oldest, slot.owed_since) : slot.owed_since;
  }
  return oldest;
}

void CreditTable::Free(Slot& slot) {
  // Freeing twice must not count twice: a free credit too many is a slot written while it is read.
  if (slot.state == State::kFree) return;
  slot.state = State::kFree;
  ++free_;
}

}  // namespace switchyard
