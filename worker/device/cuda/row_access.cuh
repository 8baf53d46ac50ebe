// Sixteen values of a row at a time, the unit of work of a codec's thread: with 16-byte accesses
// where the layout allows them, else value by value up to the row's end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/codec.h"

namespace switchyard::cuda {

constexpr int kChunk = 16;  // values

// Eight BF16 pairs; the even value of a pair is in the low half.
struct Chunk {
  std::uint32_t pairs[kChunk / 2];

  __device__ __forceinline__ std::uint32_t Bits(int i) const {
    return i % 2 == 0 ? pairs[i / 2] & 0xffffU : pairs[i / 2] >> 16;
  }
};

// Values beyond `count` read as zero, which changes neither a largest magnitude nor a code.
template <bool kWide>
__device__ __forceinline__ Chunk LoadChunk(const std::uint16_t* from, std::int64_t count) {
  Chunk chunk{};
  if constexpr (kWide) {
    if (count <= 0) return chunk;
    const uint4 low = __ldg(reinterpret_cast<const uint4*>(from));
    const uint4 high = __ldg(reinterpret_cast<const uint4*>(from) + 1);
    chunk = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      if (i < count) chunk.pairs[i / 2] |= static_cast<std::uint32_t>(from[i]) << (i % 2 * 16);
    }
  }
  return chunk;
}

template <bool kWide>
__device__ __forceinline__ void StoreChunk(std::uint16_t* to, std::int64_t count,
                                           const Chunk& chunk) {
  if constexpr (kWide) {
    if (count <= 0) return;
    const std::uint32_t* p = chunk.pairs;
    reinterpret_cast<uint4*>(to)[0] = make_uint4(p[0], p[1], p[2], p[3]);
    reinterpret_cast<uint4*>(to)[1] = make_uint4(p[4], p[5], p[6], p[7]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      if (i < count) to[i] = static_cast<std::uint16_t>(chunk.Bits(i));
    }
  }
}

// Words of codes that sixteen values take: 4 of one byte each, 2 of half a byte. `bytes`: how many
// of them belong to the row.
template <bool kWide, int kWords>
__device__ __forceinline__ void StoreCodes(std::byte* to, std::int64_t bytes,
                                           const std::uint32_t (&words)[kWords]) {
  if constexpr (kWide) {
    if (bytes <= 0) return;
    if constexpr (kWords == 4) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWords * 4; i++) {
      if (i < bytes) to[i] = static_cast<std::byte>(words[i / 4] >> (i % 4 * 8));
    }
  }
}
template <bool kWide, int kWords>
__device__ __forceinline__ void LoadCodes(const std::byte* from, std::int64_t bytes,
                                          std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; i++) words[i] = 0;
  if constexpr (kWide) {
    if (bytes <= 0) return;
    if constexpr (kWords == 4) {
      const uint4 all = __ldg(reinterpret_cast<const uint4*>(from));
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
      const uint2 all = __ldg(reinterpret_cast<const uint2*>(from));
      words[0] = all.x, words[1] = all.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWords * 4; i++) {
      if (i < bytes) words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
    }
  }
}

__device__ __forceinline__ std::uint32_t LargestMagnitude(const Chunk& chunk) {
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t pair : chunk.pairs) largest = __vmaxu2(largest, pair & 0x7fff7fffU);
  return max(largest & 0xffffU, largest >> 16);
}

}  // namespace switchyard::cuda
