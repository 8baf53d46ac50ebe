#include "worker/transport/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "worker/transport/frame.h"

namespace switchyard {
namespace {

// The polynomial with its bits reversed, because the CRC is computed from the lowest bit.
constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78U;

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kReflectedPolynomial : 0U);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = MakeTable();

}  // namespace

// CRC32C starts and ends with inverted bits. Inverting `crc` here undoes the final inversion of the
// previous piece, so that pieces can be chained.
std::uint32_t Crc32cTable(std::uint32_t crc, std::span<const std::byte> data) {
  crc = ~crc;
  for (const std::byte byte : data) {
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xffU];
  }
  return ~crc;
}

#if defined(__x86_64__)

bool HasCrc32cInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

// The target attribute lets the compiler emit SSE4.2 here while the rest of the program still runs
// on CPUs without it.
__attribute__((target("sse4.2"))) std::uint32_t Crc32cInstruction(std::uint32_t crc,
                                                                  std::span<const std::byte> data) {
  std::uint64_t state = ~crc;
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t)) {
    // A copy, because frames in a ring need not be aligned to eight bytes.
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    state = _mm_crc32_u64(state, word);
    at += sizeof(word);
  }
  auto tail = static_cast<std::uint32_t>(state);
  for (; left > 0; --left) tail = _mm_crc32_u8(tail, static_cast<unsigned char>(*at++));
  return ~tail;
}

#else

bool HasCrc32cInstruction() { return false; }
std::uint32_t Crc32cInstruction(std::uint32_t crc, std::span<const std::byte> data) {
  return Crc32cTable(crc, data);
}

#endif

std::uint32_t Crc32c(std::uint32_t crc, std::span<const std::byte> data) {
  return HasCrc32cInstruction() ? Crc32cInstruction(crc, data) : Crc32cTable(crc, data);
}

}  // namespace switchyard
