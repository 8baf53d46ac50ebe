// Where bytes live, as far as somebody who wants to read or write them has to know.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace switchyard {

enum class MemoryKind : std::uint8_t {
  kHost = 0,        // pageable memory of a process; shared memory of a ring is of this kind
  kPinnedHost = 1,  // host memory that a device reads and writes without a copy by the host
  kDevice = 2,      // reached by the device's own work only; the host must not touch it
};

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
