#include "core/tracing/trace_ids.h"

#include <limits>

namespace switchyard {
namespace {

// 2^64: ratios are parts of it.
constexpr double kAllHashes = 18446744073709551616.0;

// FNV-1a, continued from `hash`. Ids have to be the same in builds of every compiler, which
// std::hash does not promise.
std::uint64_t HashBytes(std::uint64_t hash, absl::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3U;
  return hash;
}
std::uint64_t HashWord(std::uint64_t hash, std::uint64_t word) {
  // A step of its own, so that words do not cancel out.
  return SampleHash({.session = {hash, word}, .source = 0, .step = StepId{hash}});
}

void WriteWord(std::uint64_t word, std::uint8_t* out) {
  for (unsigned i = 0; i < 8; ++i) out[i] = static_cast<std::uint8_t>(word >> (56U - 8U * i));
}

std::uint64_t NotZero(std::uint64_t word) { return word == 0 ? 1 : word; }

// Returns the part that the ids of a step have in common. `salt` tells them from each other and
// from the hash that decides, which would give all traced steps of a ratio the same first digits.
std::uint64_t HashStep(const StepKey& key, std::uint64_t salt) {
  std::uint64_t hash = HashWord(salt, key.session.high);
  hash = HashWord(hash, key.session.low);
  hash = HashWord(hash, key.source);
  return HashWord(hash, key.step.value);
}

constexpr std::uint64_t kTraceHigh = 0x5377697463685472U;
constexpr std::uint64_t kTraceLow = 0x616365204c6f7721U;
constexpr std::uint64_t kSpan = 0x5370616e206f6620U;
constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325U;

}  // namespace

std::uint64_t SampleBound(double ratio) {
  if (!(ratio > 0)) return 0;
  if (ratio >= 1) return std::numeric_limits<std::uint64_t>::max();
  // The smallest ratio still means some steps: 0 would mean none.
  return NotZero(static_cast<std::uint64_t>(ratio * kAllHashes));
}

TraceIdBytes TraceIdOf(const StepKey& key) {
  TraceIdBytes id;
  WriteWord(HashStep(key, kTraceHigh), id.data());
  WriteWord(NotZero(HashStep(key, kTraceLow)), id.data() + 8);
  return id;
}

SpanIdBytes SpanIdOf(const StepKey& key, SpanRole role, absl::string_view worker,
                     std::uint32_t chunk) {
  std::uint64_t hash = HashStep(key, kSpan);
  hash = HashWord(hash, static_cast<std::uint64_t>(role));
  hash = HashWord(hash, HashBytes(kFnvStart, worker));
  hash = HashWord(hash, chunk);
  SpanIdBytes id;
  WriteWord(NotZero(hash), id.data());
  return id;
}

}  // namespace switchyard
