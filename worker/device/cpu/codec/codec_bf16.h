// The BF16 codec: rows as they are, no scales. Encode is a gather copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/host/host_codec.h"

namespace switchyard {

// From this many bytes in one Encode on, stores go past the caches (where the CPU can): the
// destination would not stay in L2 anyway, and no line is read for ownership. `scales` is unused.
constexpr std::int64_t kNonTemporalBytesMin = std::int64_t{2} << 20;

// NaN and infinity pass unchanged, bit for bit.
class Bf16Codec final : public HostCodec {
 public:
  [[nodiscard]] WireFormat format() const override { return kBf16Format; }
  void Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
              std::byte* scales) const override;
  void Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
              std::int64_t hidden, Bf16* out) const override;
};

}  // namespace switchyard
