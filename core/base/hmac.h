// HMAC-SHA256 (RFC 2104), by libcrypto. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace switchyard {

// 32 bytes that only the holder of the key can compute. Not a Sha256Digest, which is printed and
// logged.
using HmacBytes = std::array<std::uint8_t, 32>;

// `key` has at least one byte. Ends the process when memory runs out.
HmacBytes HmacSha256(std::span<const std::uint8_t> key, absl::string_view message);

// The time does not depend on the contents, so that nobody can find a signature byte by byte.
bool EqualInConstantTime(const HmacBytes& a, const HmacBytes& b);

}  // namespace switchyard
