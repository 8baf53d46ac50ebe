#include "core/rng.h"

#include <cstdlib>
#include <sys/random.h>

namespace switchyard {

std::uint64_t SystemRng::Next() {
  std::uint64_t value = 0;
  // Eight bytes never come short once the pool is ready; without randomness no secret can be made.
  if (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) std::abort();
  return value;
}

std::uint64_t SeededRng::Next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace switchyard
