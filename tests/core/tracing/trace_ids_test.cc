#include "core/tracing/trace_ids.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

StepKey KeyOf(SessionId session, std::uint64_t step) {
  return {.session = session, .source = 7, .step = StepId{step}};
}

TEST(TraceIdsTest, ThePartOfStepsThatIsTracedIsTheRatio) {
  SeededRng rng(1);
  const auto session = rng.NextId<SessionId>();
  for (const double ratio : {0.5, 0.1, 0.01}) {
    const std::uint64_t bound = SampleBound(ratio);
    int traced = 0;
    constexpr int kSteps = 200'000;
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      traced += SampleHash(KeyOf(session, step)) <= bound ? 1 : 0;
    }
    EXPECT_NEAR(traced, ratio * kSteps, 5 * std::sqrt(ratio * kSteps)) << ratio;
  }
}

TEST(TraceIdsTest, AHigherRatioTracesTheSameStepsAndMore) {
  const StepKey key = KeyOf({1, 2}, 3);
  const std::uint64_t hash = SampleHash(key);
  EXPECT_LT(SampleBound(0.01), SampleBound(0.1));
  EXPECT_LT(SampleBound(0.1), SampleBound(1));
  EXPECT_LE(hash, SampleBound(1));
}

TEST(TraceIdsTest, RatiosBeyondTheirRangeMeanNoneOrAll) {
  EXPECT_EQ(SampleBound(0), 0U);
  EXPECT_EQ(SampleBound(-1), 0U);
  EXPECT_EQ(SampleBound(std::numeric_limits<double>::quiet_NaN()), 0U);
  EXPECT_EQ(SampleBound(1), ~std::uint64_t{0});
  EXPECT_EQ(SampleBound(2), ~std::uint64_t{0});
  EXPECT_GT(SampleBound(1e-30), 0U) << "a ratio that is not 0 is not off";
}

// Source and worker may be of different builds: these values are a part of the protocol.
TEST(TraceIdsTest, TheIdsOfAStepAreTheSameInEveryBuild) {
  const StepKey key{.session = {0x0123456789abcdefU, 0xfedcba9876543210U},
                    .source = 0xdeadbeef,
                    .step = StepId{42}};
  const auto hex = [](const auto& id) {
    std::string text;
    for (const std::uint8_t byte : id) {
      text += "0123456789abcdef"[byte >> 4U];
      text += "0123456789abcdef"[byte & 15U];
    }
    return text;
  };
  EXPECT_EQ(SampleHash(key), 0x36d7ad08cdab8505U);
  EXPECT_EQ(hex(TraceIdOf(key)), "b23403366d41afb106a4524948d4d850");
  EXPECT_EQ(hex(SpanIdOf(key, SpanRole::kStep)), "cca53139b4127e30");
  EXPECT_EQ(hex(SpanIdOf(key, SpanRole::kChunk, "worker-3", 2)), "bae655090550616d");
}

TEST(TraceIdsTest, IdsOfOtherStepsWorkersAndChunksAreOthers) {
  SeededRng rng(2);
  std::set<TraceIdBytes> traces;
  std::set<SpanIdBytes> spans;
  std::size_t expected = 0;
  for (int s = 0; s < 4; ++s) {
    StepKey key{.session = rng.NextId<SessionId>(), .source = 0, .step = {}};
    for (std::uint32_t source = 0; source < 2; ++source) {
      key.source = source;
      for (std::uint64_t step = 1; step <= 50; ++step) {
        key.step = StepId{step};
        traces.insert(TraceIdOf(key));
        for (const char* worker : {"w0", "w1"}) {
          for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
            spans.insert(SpanIdOf(key, SpanRole::kChunk, worker, chunk));
            spans.insert(SpanIdOf(key, SpanRole::kServe, worker, chunk));
            expected += 2;
          }
        }
      }
    }
  }
  EXPECT_EQ(traces.size(), 4U * 2 * 50);
  EXPECT_EQ(spans.size(), expected);
}

// Collectors sample by the trace id too: those of traced steps may not have a digit in common.
TEST(TraceIdsTest, TheTraceIdsOfTracedStepsAreSpreadEvenly) {
  const std::uint64_t bound = SampleBound(0.01);
  int high = 0;
  int traced = 0;
  for (std::uint64_t step = 1; step <= 100'000; ++step) {
    const StepKey key = KeyOf({5, 6}, step);
    if (SampleHash(key) > bound) continue;
    ++traced;
    high += TraceIdOf(key)[0] >= 128 ? 1 : 0;
  }
  EXPECT_NEAR(high, traced / 2.0, 5 * std::sqrt(traced) / 2);
}

}  // namespace
}  // namespace switchyard
