#include "core/resolve/staging_bytes.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

constexpr auto kNormal = DispatchMode::kNormal;
constexpr auto kLowLatency = DispatchMode::kLowLatency;

struct Golden {
  WireFormat format;
  std::int64_t hidden;
  std::int64_t dispatch;  // of normal mode; low_latency has 16 more
  std::int64_t combine;
};

// Bytes of a row, from the definition: data plus scales, results always two bytes a value.
const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> goldens{
      {kBf16Format, 7168, 14336, 14336},    {kFp8Format, 7168, 7392, 14336},
      {kFp8Ue8m0Format, 7168, 7224, 14336}, {kInt8Format, 7168, 7172, 14336},
      {kNvfp4Format, 7168, 4032, 14336},    {kBf16Format, 4096, 8192, 8192},
      {kFp8Format, 4096, 4224, 8192},       {kFp8Ue8m0Format, 4096, 4128, 8192},
      {kInt8Format, 4096, 4100, 8192},      {kNvfp4Format, 4096, 2304, 8192},
      {kBf16Format, 2048, 4096, 4096},      {kFp8Format, 2048, 2112, 4096},
      {kFp8Ue8m0Format, 2048, 2064, 4096},  {kInt8Format, 2048, 2052, 4096},
      {kNvfp4Format, 2048, 1152, 4096},
  };
  return goldens;
}

// R33, R34: dispatch is as large as what crosses the wire, combine is BF16 for every dtype.
TEST(StagingBytesTest, ARowTakesWhatItTakesOnTheWire) {
  for (const Golden& golden : Goldens()) {
    const auto bytes = [&](DispatchMode mode) {
      return StagingBytesPerRow(golden.format, golden.hidden, mode);
    };
    const std::string what =
        std::string(WireFormatName(golden.format)) + " " + std::to_string(golden.hidden);
    EXPECT_EQ(bytes(kNormal), (StagingBytes{golden.dispatch, golden.combine})) << what;
    EXPECT_EQ(bytes(kLowLatency), (StagingBytes{golden.dispatch + 16, golden.combine})) << what;
  }
}

// R33: the share of the dispatch buffer that quantized rows of 7168 save, in tenths of a percent.
TEST(StagingBytesTest, QuantizedRowsShrinkOnlyDispatch) {
  const auto share = [](const WireFormat& format) {
    return StagingBytesPerRow(format, 7168, kNormal).dispatch * 1000 / 14336;
  };

  EXPECT_EQ(share(kFp8Format), 515);
  EXPECT_EQ(share(kInt8Format), 500);
  EXPECT_EQ(share(kNvfp4Format), 281);
}

TEST(StagingBytesTest, OneBufferIsTheLargerTwoAreTheSum) {
  const StagingBytes bytes{.dispatch = 7392, .combine = 14336};

  EXPECT_EQ(bytes.shared(), 14336);
  EXPECT_EQ(bytes.separate(), 21728);
  EXPECT_EQ((StagingBytes{.dispatch = 9, .combine = 4}.shared()), 9);
}

TEST(StagingBytesTest, RowsGoToExpertsOrToWorkers) {
  EXPECT_EQ(RowsOf({.tokens = 128, .top_k = 8, .workers = 4}, kLowLatency), 1024);
  EXPECT_EQ(RowsOf({.tokens = 128, .top_k = 8, .workers = 4}, kNormal), 512);
  EXPECT_EQ(RowsOf({.tokens = 128, .top_k = 8, .workers = 32}, kNormal), 1024);
  EXPECT_EQ(RowsOf({.tokens = 0, .top_k = 8, .workers = 4}, kNormal), 0);
}

TEST(StagingBytesTest, WhatHoldsSeveralIsTheLargestInEachDirection) {
  const std::uint64_t seed = 11;
  SeededRng rng(seed);
  StagingBytes room;
  for (int layer = 0; layer < 100; ++layer) {
    const StagingBytes need{static_cast<std::int64_t>(rng.Below(5000)),
                            static_cast<std::int64_t>(rng.Below(5000))};
    const StagingBytes before = room;
    room = LargerOf(room, need);
    ASSERT_TRUE(Holds(room, need) && Holds(room, before)) << "seed " << seed << " layer " << layer;
    ASSERT_TRUE(room.dispatch == need.dispatch || room.dispatch == before.dispatch);
    ASSERT_TRUE(room.combine == need.combine || room.combine == before.combine);
  }
  EXPECT_FALSE(Holds({7392, 14336}, {14336, 14336})) << "dispatch alone is too small";
  EXPECT_FALSE(Holds({14336, 8192}, {7392, 14336})) << "combine alone is too small";
}

}  // namespace
}  // namespace switchyard
