#include "core/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/base/check.h"

namespace switchyard {

// As SHA-256 in hash.cc, it fails only when memory runs out, and then no answer is safe.
HmacBytes HmacSha256(std::span<const std::uint8_t> key, absl::string_view message) {
  HmacBytes out{};
  unsigned length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  SY_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(),
                out.data(), &length) != nullptr &&
               length == out.size(),
           "libcrypto cannot compute an HMAC");
  return out;
}

bool EqualInConstantTime(const HmacBytes& a, const HmacBytes& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace switchyard
