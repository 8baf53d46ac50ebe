#include "worker/device/cpu/codec/codec_bf16.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace switchyard {
namespace {

#if defined(__SSE2__)

constexpr std::size_t kLine = 64;

// Whole lines of `to` past the caches; what comes before the first and after the last, plainly.
void CopyPastCaches(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (head > bytes) head = bytes;
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

// Makes the stores above visible before any later release, as plain stores would be.
void EndCopyPastCaches() { _mm_sfence(); }

#else

void CopyPastCaches(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void EndCopyPastCaches() {}

#endif

}  // namespace

void Bf16Codec::Encode(std::span<const Bf16* const> rows, std::int64_t hidden, std::byte* data,
                       std::byte* /*scales*/) const {
  const auto row_bytes = static_cast<std::size_t>(hidden) * sizeof(Bf16);
  if (static_cast<std::int64_t>(row_bytes * rows.size()) < kNonTemporalBytesMin) {
    for (const Bf16* row : rows) {
      std::memcpy(data, row, row_bytes);
      data += row_bytes;
    }
    return;
  }
  for (const Bf16* row : rows) {
    CopyPastCaches(data, reinterpret_cast<const std::byte*>(row), row_bytes);
    data += row_bytes;
  }
  EndCopyPastCaches();
}

void Bf16Codec::Decode(const std::byte* data, const std::byte* /*scales*/, std::int64_t rows,
                       std::int64_t hidden, Bf16* out) const {
  if (rows == 0) return;  // The pointers may be null then.
  std::memcpy(out, data, static_cast<std::size_t>(rows * hidden) * sizeof(Bf16));
}

}  // namespace switchyard
