#include "bench/read_bandwidth.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <benchmark/benchmark.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchyard::bench {
namespace {

constexpr std::int64_t kPieces = 64;
constexpr std::int64_t kPageBytes = 4096;

struct Piece {
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;  // a multiple of 256
  std::int64_t ahead_bytes = 0;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) std::uint64_t SumAvx512(const Piece& piece) {
  __m512i sums[4] = {};
  for (std::int64_t at = 0; at < piece.bytes; at += 256) {
    for (int i = 0; i < 4; ++i) {
      const std::byte* line = piece.from + at + std::ptrdiff_t{64} * i;
      if (piece.ahead_bytes > 0) _mm_prefetch(line + piece.ahead_bytes, _MM_HINT_T0);
      sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(line));
    }
  }
  std::uint64_t words[8] = {};
  _mm512_storeu_si512(words, _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]),
                                              _mm512_add_epi64(sums[2], sums[3])));
  return words[0] + words[3] + words[7];
}
#endif

std::uint64_t SumPlain(const Piece& piece) {
  std::uint64_t sums[8] = {};
  for (std::int64_t at = 0; at < piece.bytes; at += 64) {
    std::uint64_t words[8];
    std::memcpy(words, piece.from + at, sizeof(words));
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  return sums[0] + sums[3] + sums[7];
}

std::uint64_t Sum(const Piece& piece) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return SumAvx512(piece);
#endif
  return SumPlain(piece);
}

}  // namespace

ReadBandwidth::ReadBandwidth(std::int64_t bytes, int threads) {
  auto buffer = AlignedBuffer::Allocate((bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  auto pool = ComputePool::Create(threads);
  if (!buffer.ok() || !pool.ok()) {
    std::fprintf(stderr, "read bandwidth: no memory or threads\n");
    std::exit(1);
  }
  buffer_ = std::move(buffer).value();
  pool_ = std::move(pool).value();
  std::memset(buffer_.data(), 1, static_cast<std::size_t>(buffer_.bytes()));
  double best = 1e9;
  std::int64_t best_ahead = 0;
  for (const std::int64_t ahead : {0, 256, 512, 1024, 2048}) {
    ahead_bytes_ = ahead;
    const double seconds = std::min(ReadOnce(), ReadOnce());
    if (seconds < best) {
      best = seconds;
      best_ahead = ahead;
    }
  }
  ahead_bytes_ = best_ahead;
}

double ReadBandwidth::ReadOnce() {
  const std::int64_t pages = buffer_.bytes() / kPageBytes;
  const auto start = std::chrono::steady_clock::now();
  pool_->Run(kPieces, [&](std::int64_t piece, int /*thread*/) {
    const std::int64_t first = pages * piece / kPieces * kPageBytes;
    const std::int64_t last = pages * (piece + 1) / kPieces * kPageBytes;
    benchmark::DoNotOptimize(
        Sum({.from = buffer_.data() + first, .bytes = last - first, .ahead_bytes = ahead_bytes_}));
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace switchyard::bench
