#include "worker/device/host/futex.h"

#include <algorithm>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

namespace switchyard {

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout) {
  const auto ns = std::max<std::int64_t>(std::chrono::nanoseconds(timeout).count(), 0);
  const timespec limit = {.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000),
                          .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}

void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace switchyard
