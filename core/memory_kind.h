// The kinds of memory, as far as a reader or writer has to know.
//
// A device says which kinds it computes on (worker/device/device_backend.h); a stream copies
// between kinds.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace switchyard {

enum class MemoryKind : std::uint8_t {
  kHost = 0,        // pageable memory of a process; shared memory of a ring is of this kind
  kPinnedHost = 1,  // page-locked host memory, which host and device read and write
  kDevice = 2,      // reached by the device's own work only; the host must not touch it
};

// For error texts and tables.
constexpr absl::string_view MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      return "host";
    case MemoryKind::kPinnedHost:
      return "pinned";
    case MemoryKind::kDevice:
      return "device";
  }
  return "unknown";
}

}  // namespace switchyard
