#include "core/rng.h"

#include <sys/random.h>

#include "core/base/check.h"

namespace switchyard {

std::uint64_t SystemRng::Next() {
  std::uint64_t value = 0;
  // Eight bytes never come short once the pool is ready; without randomness no secret can be made.
  SY_CHECK(getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value)),
           "the kernel gives no random bytes");
  return value;
}

std::uint64_t SeededRng::Next() {
  state_ += kSplitMix64Step;
  return SplitMix64(state_);
}

}  // namespace switchyard
