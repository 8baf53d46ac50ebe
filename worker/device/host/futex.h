// Sleeping on a word of memory, always with a time-out: a wake that is lost costs a delay, never a
// hang.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/clock.h"

namespace switchyard {

// Returns when woken, when the word is not `expected`, or after `timeout`. May return early.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);
// Wakes every thread that waits for `word`; a system call, also when there is none.
void FutexWakeAll(std::atomic<std::uint32_t>& word);
// A hint to the CPU that this thread spins, which saves power and gives a hyper-thread room.
void SpinPause();

}  // namespace switchyard
