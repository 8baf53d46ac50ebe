// Credits of one attachment: request slot i and reply slot i together are credit i.
//
//   kFree --Reserve--> kReserved --Send--> kSent --Accept--> kAnswered --Release--> kFree
//                         |                  \--GiveUp--> kGivenUp --Accept (late)--> kFree
//                         \--Release--> kFree   (nothing was sent)
//
// A credit whose chunk was sent is freed only by reading the reply: not by a deadline, a dropped
// handle, a closing session or an epoch change, since the worker may still write its reply slot.
// Not thread-safe; allocates only in the constructor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/ids.h"

namespace switchyard {

// The chunk that a credit carries: a reply must repeat it to be accepted.
struct ChunkKey {
  StepId step;
  LayerId layer;
  std::uint16_t chunk = 0;
  std::uint8_t attempt = 0;
  friend constexpr bool operator==(const ChunkKey&, const ChunkKey&) = default;
};

class CreditTable {
 public:
  // The fate of a reply at its credit.
  enum class Answer {
    kAccepted,   // the step waits for this reply
    kLate,       // the step was given up: the credit is free again
    kUnexpected  // no step waits for it: a second copy, or a wrong key
  };

  // `credits` free ones; 0 for an attachment without rings.
  explicit CreditTable(std::uint32_t credits);

  // A free credit, now kReserved: its request slot may be filled, and no reply is accepted. nullopt
  // when all are taken.
  std::optional<std::uint32_t> Reserve();
  // The chunk of a kReserved credit is about to be sent.
  void Send(std::uint32_t credit, const ChunkKey& key);
  // A reply with this key came for `credit`, which must be below size().
  Answer Accept(std::uint32_t credit, const ChunkKey& key, TimePoint now);
  // The reply in a kAnswered credit has been read, or a kReserved one sends nothing.
  void Release(std::uint32_t credit);
  // The step has ended without this credit's reply. A kAnswered credit is free at once; a kReserved
  // one stays until Release.
  void GiveUp(std::uint32_t credit, TimePoint now);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }
  // Chunks that can be sent now.
  [[nodiscard]] std::uint32_t free() const { return free_; }
  // Since when the worker has not come closer to the reply of a credit that is given up: since
  // that, or since its last reply to a chunk that was sent before it. Of several, the earliest.
  [[nodiscard]] std::optional<TimePoint> OwedSince() const;

 private:
  enum class State : std::uint8_t { kFree, kReserved, kSent, kAnswered, kGivenUp };
  // One credit.
  struct Slot {
    State state = State::kFree;
    ChunkKey key;
    std::uint64_t order = 0;  // of sending
    TimePoint owed_since{};   // kGivenUp
  };
  // The chunk with that number has been answered: the worker works towards those sent after it.
  void NoteAnswered(std::uint64_t order, TimePoint now);
  // Frees once, however often it is called.
  void Free(Slot& slot);

  std::vector<Slot> slots_;
  std::uint32_t free_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace switchyard
