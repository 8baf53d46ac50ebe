// Sealed blobs: addresses and keys of rings as they travel in an Attach.
//
//   magic u32 | CRC32C u32 over what follows | bytes
//
// UCX unpacks what it is given without checks, and a key names a process; a blob that was cut,
// damaged or made by something else is refused here instead. Not a secret and not a signature:
// Attach's channel authenticates.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

enum class BlobKind : std::uint32_t {
  kAddress = 0x41555953,  // "SYUA"
  kRingKey = 0x4b525953,  // "SYRK"
};

std::string SealBlob(BlobKind kind, absl::string_view bytes);
// The bytes inside; nothing when `sealed` is not a whole blob of that kind.
std::optional<absl::string_view> OpenBlob(BlobKind kind, absl::string_view sealed);

}  // namespace switchyard
