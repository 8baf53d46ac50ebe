#include "worker/transport/doorbells.h"

#include <bit>
#include <memory>
#include <new>

#include "core/base/check.h"

namespace switchyard {
namespace {

using Number = std::atomic<std::uint32_t>;

constexpr std::size_t kLine = 64;

std::uint32_t CapacityOf(std::uint32_t slots) { return std::bit_ceil(slots); }

std::byte* NumbersIn(std::span<std::byte> memory, std::uint32_t slots) {
  SY_CHECK(slots > 0 && memory.size() >= BellBytes(slots) &&
               reinterpret_cast<std::uintptr_t>(memory.data()) % kLine == 0,
           "doorbells in memory that is too small or not aligned");
  return memory.data() + sizeof(BellMemory);
}

}  // namespace

std::size_t BellBytes(std::uint32_t slots) {
  const std::size_t numbers = std::size_t{CapacityOf(slots)} * sizeof(Number);
  return sizeof(BellMemory) + (numbers + kLine - 1) / kLine * kLine;
}

BellOwner::BellOwner(std::span<std::byte> memory, std::uint32_t slots, std::uint64_t tag) {
  std::byte* const numbers = NumbersIn(memory, slots);
  shared_ = new (memory.data()) BellMemory;
  shared_->tag = tag;
  std::uninitialized_value_construct_n(reinterpret_cast<Number*>(numbers), CapacityOf(slots));
  numbers_ = {std::launder(reinterpret_cast<Number*>(numbers)), CapacityOf(slots)};
}

std::optional<std::uint32_t> BellOwner::Take() {
  const std::uint32_t rung = shared_->rung.load(std::memory_order_acquire);
  if (rung == taken_) return std::nullopt;
  // More than the queue holds: only a peer that ignores `taken` does this, and what it has
  // overwritten is lost.
  const auto capacity = static_cast<std::uint32_t>(numbers_.size());
  if (rung - taken_ > capacity) taken_ = rung - capacity;
  const std::uint32_t slot = numbers_[taken_ & (capacity - 1)].load(std::memory_order_relaxed);
  ++taken_;
  shared_->taken.store(taken_, std::memory_order_release);
  return slot;
}

bool BellOwner::rung() const { return shared_->rung.load(std::memory_order_seq_cst) != taken_; }

void BellOwner::SetState(BellState state) {
  const auto value = static_cast<std::uint32_t>(state);
  // Most rings of a process are idle: their line stays with the peer that read it.
  if (shared_->state.load(std::memory_order_relaxed) == value) return;
  shared_->state.store(value, std::memory_order_seq_cst);
}

BellPeer::BellPeer(std::span<std::byte> memory, std::uint32_t slots) {
  std::byte* const numbers = NumbersIn(memory, slots);
  shared_ = std::launder(reinterpret_cast<BellMemory*>(memory.data()));
  numbers_ = {std::launder(reinterpret_cast<Number*>(numbers)), CapacityOf(slots)};
}

BellPeer::Rung BellPeer::Ring(std::uint32_t slot) {
  constexpr auto kAsleep = static_cast<std::uint32_t>(BellState::kAsleep);
  constexpr auto kAwake = static_cast<std::uint32_t>(BellState::kAwake);
  constexpr auto kClosed = static_cast<std::uint32_t>(BellState::kClosed);
  const auto capacity = static_cast<std::uint32_t>(numbers_.size());
  if (rung_ - taken_ >= capacity) {
    taken_ = shared_->taken.load(std::memory_order_acquire);
    if (rung_ - taken_ >= capacity) return Rung::kRefused;
  }
  if (shared_->state.load(std::memory_order_relaxed) == kClosed) return Rung::kRefused;
  numbers_[rung_ & (capacity - 1)].store(slot, std::memory_order_relaxed);
  ++rung_;
  shared_->rung.store(rung_, std::memory_order_seq_cst);
  // One wake-up for each sleep. An owner that closes meanwhile stays closed.
  std::uint32_t seen = shared_->state.load(std::memory_order_seq_cst);
  if (seen != kAsleep) return Rung::kSeen;
  return shared_->state.compare_exchange_strong(seen, kAwake) ? Rung::kWake : Rung::kSeen;
}

}  // namespace switchyard
