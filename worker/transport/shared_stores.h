// Memory ordering between rows in shared memory and the doorbell that announces them: a system
// call, which orders nothing by itself, or an atomic, which does not order non-temporal stores.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace switchyard {

// ThreadSanitizer does not support fences and warns about them. It could not see the other process
// in any case.
#pragma GCC diagnostic push
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

// Call before the doorbell. Makes all earlier stores visible to the peer, including non-temporal
// ones, which a release fence does not order.
inline void PublishStores() {
  __atomic_thread_fence(__ATOMIC_RELEASE);
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Call after the doorbell. Later loads see everything that the peer stored before it.
inline void AcquireStores() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

#pragma GCC diagnostic pop

}  // namespace switchyard
