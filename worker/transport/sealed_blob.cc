#include "worker/transport/sealed_blob.h"

#include <array>
#include <cstring>
#include <span>

#include "worker/transport/frame.h"

namespace switchyard {
namespace {

struct Seal {
  std::uint32_t magic = 0;
  std::uint32_t crc = 0;
};

std::uint32_t CrcOf(absl::string_view bytes) {
  return Crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size())));
}

}  // namespace

std::string SealBlob(BlobKind kind, absl::string_view bytes) {
  const Seal seal{static_cast<std::uint32_t>(kind), CrcOf(bytes)};
  std::string sealed(sizeof(seal) + bytes.size(), '\0');
  std::memcpy(sealed.data(), &seal, sizeof(seal));
  std::memcpy(sealed.data() + sizeof(seal), bytes.data(), bytes.size());
  return sealed;
}

std::optional<absl::string_view> OpenBlob(BlobKind kind, absl::string_view sealed) {
  Seal seal;
  if (sealed.size() < sizeof(seal)) return std::nullopt;
  // Copied out, because the blob's bytes need not be aligned.
  std::memcpy(&seal, sealed.data(), sizeof(seal));
  const absl::string_view bytes = sealed.substr(sizeof(seal));
  if (seal.magic != static_cast<std::uint32_t>(kind) || seal.crc != CrcOf(bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace switchyard
