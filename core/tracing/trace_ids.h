// Which steps are traced, and the ids of their spans. Both follow from the step alone, so that its
// source and its workers come to the same ones without a word between them (ADR 20). No frame, no
// message of a step and no secret is involved.
//
// Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

#include "core/ids.h"

namespace switchyard {

// Names a step among all steps of all sources. Every frame's header has the last two, and its
// attachment the session.
struct StepKey {
  SessionId session;
  std::uint32_t source = 0;  // low half of the source's incarnation: a gateway may start again
  StepId step;
  friend bool operator==(const StepKey&, const StepKey&) = default;
};

// Spreads steps evenly over all values.
inline std::uint64_t SampleHash(const StepKey& key) {
  // The finalizer of SplitMix64: cheap, and each bit of the input reaches each of the output.
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  };
  const std::uint64_t life = mix(key.session.high ^ key.session.low ^ key.source);
  return mix(life + key.step.value * 0x9e3779b97f4a7c15U);
}

// A step is traced when its hash is at most this. 0: none is; all are for ratios from 1 on.
std::uint64_t SampleBound(double ratio);

using TraceIdBytes = std::array<std::uint8_t, 16>;
using SpanIdBytes = std::array<std::uint8_t, 8>;

// The spans of a step. Sub-spans of one chunk have its worker and chunk.
enum class SpanRole : std::uint8_t {
  kStep = 1,
  kPlan = 2,
  kChunk = 3,
  kDispatch = 4,
  kServe = 5,
  kQueue = 6,
  kCompute = 7,
  kReply = 8,
  kCombine = 9,
  kExchange = 10,
};

// Never all zero, which would mean "none".
TraceIdBytes TraceIdOf(const StepKey& key);
// `worker` is empty and `chunk` 0 for spans of the step as a whole.
SpanIdBytes SpanIdOf(const StepKey& key, SpanRole role, absl::string_view worker = {},
                     std::uint32_t chunk = 0);

}  // namespace switchyard
