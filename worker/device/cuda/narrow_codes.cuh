// The bits of narrow weights (narrow_weights.h), for those who write and those who expand them.
//
// A word holds the eight codes that a thread needs for one step of 16 k: pair j are two neighbors
// in k, of row g (j even) or g + 8 (j odd), k 2 c (j < 2) or 2 c + 8 (j >= 2), where lane = 4 g +
// c.
#pragma once

#include <cstdint>

namespace switchyard::cuda {

constexpr int kNarrowRows = 128;
constexpr int kNarrowK = 128;
constexpr int kNarrowStep = 16;
constexpr int kNarrowCodeBytes = kNarrowRows * kNarrowK / 2;

// Where the word of a thread lies among those of a block; a thread's words of four steps are
// neighbors.
__host__ __device__ constexpr int NarrowWord(int warp, int lane, int step) {
  return ((warp * 2 + step / 4) * 32 + lane) * 4 + step % 4;
}

// (value & mask) | others, in one instruction, which has room for one constant: expanding is bound
// by their number.
__device__ __forceinline__ std::uint32_t Insert(std::uint32_t value, std::uint32_t mask,
                                                std::uint32_t others) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(value), "r"(mask), "r"(others));
  return out;
}

// INT4: the code of pair j's first value is at bit 4 j, that of its second 16 bits above.
__device__ __forceinline__ std::uint32_t PlaceInt4(std::uint32_t code, int pair, int second) {
  return code << (4 * pair + 16 * second);
}
// Two BF16 integers, by bits: 128 + code, then what takes it to the value.
__device__ __forceinline__ std::uint32_t ExpandInt4(std::uint32_t word, int pair,
                                                    std::uint32_t least) {
  const std::uint32_t raised = Insert(word >> (4 * pair), 0x000f000fU, 0x43004300U);
  std::uint32_t values;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(values) : "r"(raised), "r"(least));
  return values;
}

// INT4 as E4M3. Codes 0 to 15 of that format are 0 to 15 times 2^-9, so 2 v + 1, which is odd and
// no more than 15 from zero for v from -8 to 7, has its magnitude's upper three bits at bits 1 to 3
// of a byte whose bit 0 is set. The products subtract the ones again (narrow_stage_fp8.cuh).
//
// A byte of a word holds a code of row g, sign at bit 7 and magnitude at bits 1 to 3, and one of
// row g + 8, sign at bit 0 and magnitude at bits 4 to 6; its four bytes are neighbors in k. lane =
// 4 g + c, and c has the k from 4 c on of 16.
constexpr float kInt4Fp8Unit = 256.0F;  // 2^9, of which the 2 of 2 v is a part
constexpr std::uint32_t kInt4Fp8One = 0x01010101U;
// `code`: v + 8.
__device__ __forceinline__ std::uint32_t PlaceInt4Fp8(std::uint32_t code, int half, int byte) {
  const std::uint32_t sign = code < 8 ? 1U : 0U;
  const std::uint32_t magnitude = (sign != 0 ? ~code : code) & 7U;
  return (half == 0 ? sign << 7 | magnitude << 1 : sign | magnitude << 4) << (8 * byte);
}
__device__ __forceinline__ std::uint32_t ExpandInt4Fp8(std::uint32_t word, int half) {
  if (half == 0) return Insert(word, 0x8e8e8e8eU, kInt4Fp8One);
  return Insert(word << 7, 0x80808080U, Insert(word >> 3, 0x0e0e0e0eU, kInt4Fp8One));
}
// Where the scale of a row lies among those of a block: a thread's two rows are neighbors.
__host__ __device__ constexpr int Int4Fp8Scale(int row) {
  return row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
}

// E2M1: BF16 has the sign at bit 15 and 2^-126 times the magnitude at bits 6 to 8. The codes are
// spread so that three of four pairs come there, both values at once, by one rotation.
__device__ __forceinline__ std::uint32_t Rotated(std::uint32_t word, int left) {
  return __funnelshift_l(word, word, left);
}
__device__ __forceinline__ std::uint32_t PlaceE2m1(std::uint32_t code, int pair, int second) {
  const std::uint32_t sign = code >> 3;
  const std::uint32_t magnitude = code & 7U;
  std::uint32_t word;
  if (pair < 3) {
    word = Rotated(sign << 15 | magnitude << 6, pair == 0 ? 0 : pair == 1 ? 3 : 29);
  } else {
    word = sign | (magnitude & 1U) << 1 | (magnitude >> 1) << 13;
  }
  return Rotated(word, 16 * second);
}
__device__ __forceinline__ std::uint32_t SpreadE2m1(std::uint32_t word, int pair) {
  constexpr std::uint32_t kCode = 0x81c081c0U;
  if (pair == 0) return word & kCode;
  if (pair == 1) return Rotated(word, 29) & kCode;
  if (pair == 2) return (word << 3) & kCode;
  return Insert(word << 15, 0x80008000U, Insert(word << 5, 0x00400040U, (word >> 6) & 0x01800180U));
}

// A scale (1 + low / 8) * 2^(high - 16) of the byte 8 high + low, times 2^112, in both halves.
// Products with it are 2^-14 of the weights: no scale overflows, and none is lost.
constexpr float kNarrowUnit = 16384.0F;
__device__ __forceinline__ std::uint32_t NarrowFactor(std::uint32_t four_scales, int which) {
  // To both halves by a multiplication, which is none of the instructions that are short.
  return __byte_perm(four_scales, 0, 0x4440U | static_cast<std::uint32_t>(which)) * 0x00100010U +
         0x6f806f80U;
}
__device__ __forceinline__ std::uint32_t ExpandE2m1(std::uint32_t word, int pair,
                                                    std::uint32_t factor) {
  std::uint32_t values;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(values) : "r"(SpreadE2m1(word, pair)), "r"(factor));
  return values;
}

}  // namespace switchyard::cuda
