#include "core/base/hash.h"

#include "absl/strings/str_format.h"
#include <openssl/evp.h>

#include "core/base/check.h"

namespace switchyard {

std::string Sha256Digest::ToHex() const {
  std::string out;
  for (const std::uint8_t byte : bytes) out += absl::StrFormat("%02x", byte);
  return out;
}

// Upper case is refused, so that equal digests are equal texts.
absl::StatusOr<Sha256Digest> Sha256Digest::FromHex(absl::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) {
    return absl::InvalidArgumentError("a SHA-256 digest is written as 64 hex digits");
  }
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    unsigned value = 0;
    for (const char c : hex.substr(2 * i, 2)) {
      const char* digits = "0123456789abcdef";
      const std::size_t digit = absl::string_view(digits).find(c);
      if (digit == absl::string_view::npos) {
        return absl::InvalidArgumentError("a SHA-256 digest is written in lower-case hex digits");
      }
      value = value * 16 + static_cast<unsigned>(digit);
    }
    digest.bytes[i] = static_cast<std::uint8_t>(value);
  }
  return digest;
}

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

// libcrypto's SHA-256 fails only when memory runs out, and a wrong hash would accept wrong weights:
// ending the process is the only safe answer.
Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  SY_CHECK(
      state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
      "no memory for SHA-256");
}

Sha256Stream::~Sha256Stream() { EVP_MD_CTX_free(state_->context); }

void Sha256Stream::Update(std::span<const std::byte> data) {
  SY_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1,
           "libcrypto cannot hash");
}

Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  unsigned length = 0;
  SY_CHECK(EVP_DigestFinal_ex(state_->context, digest.bytes.data(), &length) == 1,
           "libcrypto cannot hash");
  return digest;
}

Sha256Digest Sha256(std::span<const std::byte> data) {
  Sha256Stream stream;
  stream.Update(data);
  return stream.Finish();
}

Sha256Digest Sha256(absl::string_view data) {
  return Sha256(std::as_bytes(std::span<const char>(data.data(), data.size())));
}

}  // namespace switchyard
