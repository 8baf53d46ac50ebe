// Sleeping on a word of memory, always with a time-out: a wake that is lost costs a delay, never a
// hang.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/clock.h"

namespace switchyard {

// Returns when woken, when the word is not `expected`, or after `timeout`. May return early.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);
void FutexWakeAll(std::atomic<std::uint32_t>& word);
// Tells the CPU that this thread spins.
void SpinPause();

}  // namespace switchyard
