// Order between rows stored into shared memory and the doorbell that tells of them. The peer is
// another process, so no lock or atomic of ours stands between the two.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace switchyard {

// ThreadSanitizer does not follow fences, and warns; across processes it has nothing to follow.
#pragma GCC diagnostic push
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

// Before ringing: what was stored is visible to the peer; non-temporal stores too, which a release
// fence leaves out.
inline void PublishStores() {
  __atomic_thread_fence(__ATOMIC_RELEASE);
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// After the doorbell: what the peer stored before it rang is seen by what is read from here on.
inline void AcquireStores() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

#pragma GCC diagnostic pop

}  // namespace switchyard
