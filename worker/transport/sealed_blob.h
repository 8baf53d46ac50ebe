// Sealed blobs: the encoding of ring addresses and ring keys in an Attach message.
//
//   magic u32 | CRC32C u32 over what follows | bytes
//
// UCX unpacks an address without checks, and a key refers to a process. A blob that is truncated,
// damaged or from other software is therefore refused here. The seal is neither a secret nor a
// signature; authentication is the job of the channel that carries the Attach message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

enum class BlobKind : std::uint32_t {
  kAddress = 0x41555953,  // "SYUA"
  kRingKey = 0x4b525953,  // "SYRK"
};

std::string SealBlob(BlobKind kind, absl::string_view bytes);
// The bytes inside; nullopt if `sealed` is not a complete blob of this kind.
std::optional<absl::string_view> OpenBlob(BlobKind kind, absl::string_view sealed);

}  // namespace switchyard
