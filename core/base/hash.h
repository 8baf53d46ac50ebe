// SHA-256, for weights and plans (libcrypto underneath: SHA-NI where the CPU has it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// The 32 bytes of a hash. Ordered and hashable, so that it can be a key.
struct Sha256Digest {
  std::array<std::uint8_t, 32> bytes{};

  friend constexpr auto operator<=>(const Sha256Digest&, const Sha256Digest&) = default;
  [[nodiscard]] std::string ToHex() const;  // 64 lower-case digits
  // Errors: kInvalidArgument unless `hex` is exactly 64 digits, lower-case: a digest has one
  // spelling.
  static absl::StatusOr<Sha256Digest> FromHex(absl::string_view hex);

  template <typename H>
  friend H AbslHashValue(H h, const Sha256Digest& digest) {
    return H::combine(std::move(h), digest.bytes);
  }
};

// The hash of a committed epoch's plan.
using PlanHash = Sha256Digest;

// One call for data that lies in memory as a whole; reads it once.
Sha256Digest Sha256(std::span<const std::byte> data);
Sha256Digest Sha256(absl::string_view data);

// For data that comes in pieces, such as a tensor that is read block by block. Not thread-safe. The
// digest is the one that Sha256 gives for the whole.
// Ends the process when memory runs out, because a wrong hash would accept wrong weights.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  // Pieces may have any size; only their concatenation matters.
  void Update(std::span<const std::byte> data);
  // Call once, last.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace switchyard
