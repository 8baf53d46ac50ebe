// Randomness, injected like the clock: real for ids and secrets, seeded for tests and simulation.
//
// Code that draws from a global generator could not be replayed from a seed.
#pragma once

#include <cstdint>

#include "core/ids.h"

namespace switchyard {

// Whoever needs randomness is given one of these, so that a simulation replays from its seed.
class Rng {
 public:
  virtual ~Rng() = default;
  // 64 uniform bits.
  virtual std::uint64_t Next() = 0;

  // In [0, bound); `bound` > 0. The bias (< bound / 2^64) does not matter here.
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }
  // In [0, 1).
  // 53 bits, as many as a double's fraction holds: every result is exact and 1 cannot occur.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  // An Incarnation or SessionId of 128 random bits.
  template <typename Id>
  Id NextId() {
    Id id;
    id.high = Next();
    id.low = Next();
    return id;
  }
};

// From the kernel (getrandom): for incarnations, session ids and cookies. Thread-safe.
class SystemRng final : public Rng {
 public:
  std::uint64_t Next() override;
};

// The mixing of splitmix64: a bijection of 64 bits without visible pattern.
inline std::uint64_t SplitMix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}
// The increment of SeededRng's state before each mixing.
inline constexpr std::uint64_t kSplitMix64Step = 0x9e3779b97f4a7c15ULL;

// splitmix64 (Steele, Lea, Flood 2014): equal seeds, equal streams, on every machine. Not for
// secrets.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() override;

 private:
  std::uint64_t state_;
};

}  // namespace switchyard
