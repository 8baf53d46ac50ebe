// Credits of one attachment: request slot i and reply slot i are one pair, one pair is one credit.
//
//   kFree --Send--> kSent --Accept--> kAnswered --Release--> kFree
//                     \--GiveUp--> kGivenUp --Accept (late)--> kFree
//
// A pair is freed only by reading its reply: not by a deadline, a dropped handle, a closing session
// or an epoch change, since the worker may still write its reply slot. Not thread-safe; allocates
// only in the constructor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/mutant.h"

namespace switchyard {

// Which chunk a pair carries: what a reply must repeat to be accepted.
struct PairKey {
  StepId step;
  LayerId layer;
  std::uint16_t chunk = 0;
  std::uint8_t attempt = 0;
  friend constexpr bool operator==(const PairKey&, const PairKey&) = default;
};

class CreditTable {
 public:
  enum class Answer {
    kAccepted,   // the reply that was waited for
    kLate,       // of a step that was given up: the pair is free again
    kUnexpected  // of nobody: a second copy, or a wrong key
  };

  explicit CreditTable(std::uint32_t pairs, MutantId mutant = MutantId::kNone);

  // A free pair, now kSent; nullopt when all are taken.
  std::optional<std::uint32_t> Send(const PairKey& key);
  // `pair` < size().
  Answer Accept(std::uint32_t pair, const PairKey& key);
  // The reply in a kAnswered pair has been read.
  void Release(std::uint32_t pair);
  // The step of `pair` has ended without it. A kAnswered pair is free at once.
  void GiveUp(std::uint32_t pair, TimePoint now);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] std::uint32_t free() const { return free_; }
  // When the oldest pair that is still given up was given up.
  [[nodiscard]] std::optional<TimePoint> OldestGivenUp() const;

 private:
  enum class State : std::uint8_t { kFree, kSent, kAnswered, kGivenUp };
  struct Slot {
    State state = State::kFree;
    PairKey key;
    TimePoint given_up{};
  };
  void Free(Slot& slot);

  MutantId mutant_;
  std::vector<Slot> slots_;
  std::uint32_t free_ = 0;
};

}  // namespace switchyard
