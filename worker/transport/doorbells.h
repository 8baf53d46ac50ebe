// Doorbells of a mapped ring: the numbers of its slots that hold new frames, in the order of the
// sends.
//
// A queue of slot numbers lies behind the slots, in the same memory. The peer rings: it appends a
// number. The owner takes. While the owner is awake, neither makes a system call. Before it sleeps
// it says so in the ring and looks once more; a peer that rings then wakes it through a pipe. Both
// sides store before they load here (sequentially consistent), so one of them sees the other.
//
// The owner trusts nothing in this memory: a peer that writes what it likes can ring slots without
// frames, repeat or lose its own doorbells, and wake the owner in vain. The memory outlives both
// objects. Each of them belongs to one thread at a time. Nothing allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace switchyard {

// A peer reads here what to do after it rang.
enum class BellState : std::uint32_t {
  kAwake = 0,   // nothing: the owner looks by itself
  kAsleep = 1,  // wake the owner
  kClosed = 2,  // send a message instead: nobody takes from this ring any more
};

// The start of the queue in memory. Members that different sides write are in different cache
// lines. The numbers of slots follow, as many as there are slots, rounded up to a power of two.
struct BellMemory {
  std::uint64_t tag = 0;  // shows a peer that it has mapped the ring that was offered
  alignas(64) std::atomic<std::uint32_t> rung = 0;   // numbers appended so far, modulo 2^32
  alignas(64) std::atomic<std::uint32_t> taken = 0;  // of those, taken
  alignas(64) std::atomic<std::uint32_t> state = static_cast<std::uint32_t>(BellState::kAsleep);
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

// The size of a queue for `slots` slots: a multiple of 64 bytes.
std::size_t BellBytes(std::uint32_t slots);

// The owner's side.
class BellOwner {
 public:
  BellOwner() = default;
  // Makes an empty queue in `memory`, BellBytes(slots) bytes at a multiple of 64.
  BellOwner(std::span<std::byte> memory, std::uint32_t slots, std::uint64_t tag);

  // The next slot that the peer rang, which may be any number. Empty: none.
  std::optional<std::uint32_t> Take();
  // Whether Take has a number to give.
  [[nodiscard]] bool rung() const;
  // Between SetState(kAsleep) and the sleep, look once more with rung().
  void SetState(BellState state);

 private:
  BellMemory* shared_ = nullptr;
  std::span<std::atomic<std::uint32_t>> numbers_;
  std::uint32_t taken_ = 0;
};

// The peer's side.
class BellPeer {
 public:
  BellPeer() = default;
  // `memory`: a queue that its owner has made for as many slots.
  BellPeer(std::span<std::byte> memory, std::uint32_t slots);

  [[nodiscard]] std::uint64_t tag() const { return shared_->tag; }
  enum class Rung : std::uint8_t {
    kSeen,     // or about to be, without more ado
    kWake,     // the owner sleeps: wake it
    kRefused,  // nothing was appended: the queue is full, which a peer that keeps to its credits
               // never sees, or closed
  };
  // Appends `slot`. The frame in it must have been published (shared_stores.h).
  Rung Ring(std::uint32_t slot);

 private:
  BellMemory* shared_ = nullptr;
  std::span<std::atomic<std::uint32_t>> numbers_;
  std::uint32_t rung_ = 0;
  std::uint32_t taken_ = 0;  // as last read: the owner's line is read again only when it matters
};

}  // namespace switchyard
