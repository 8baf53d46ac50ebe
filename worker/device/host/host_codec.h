// Codecs of devices that encode and decode in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/format/bf16.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Immutable, thread-safe; allocates nothing. data and scales as in Codec.
class HostCodec : public Codec {
 public:
  // Gathers `rows` (each BF16 [hidden], any alignment) into `data` and `scales`.
  // Both take any number of rows; 0 does nothing.
  virtual void Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
                      std::byte* scales) const = 0;
  // [rows, hidden] BF16 into `out`.
  virtual void Decode(const std::byte* data, const std::byte* scales, std::int64_t rows,
                      std::int64_t hidden, Bf16* out) const = 0;
};

// The codec as the host device that made it knows it. A static cast, because codecs never change
// devices: every codec that reaches a host stream was made by a host device.
inline const HostCodec& AsHostCodec(const Codec& codec) {
  return static_cast<const HostCodec&>(codec);
}

}  // namespace switchyard
