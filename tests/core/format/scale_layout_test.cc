#include "core/format/scale_layout.h"

#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr ScaleExtents kExtents[] = {{.experts = 1, .rows = 1, .groups = 1},
                                     {.experts = 3, .rows = 5, .groups = 7},
                                     {.experts = 2, .rows = 128, .groups = 4},
                                     {.experts = 2, .rows = 129, .groups = 5},
                                     {.experts = 2, .rows = 300, .groups = 16}};

// Each index has an offset of its own within `size`, and `index_of` is its inverse.
template <typename OffsetOf, typename IndexOf>
void ExpectBijection(const ScaleExtents& in, std::int64_t size, OffsetOf offset_of,
                     IndexOf index_of) {
  std::vector<int> hits(static_cast<std::size_t>(size), 0);
  for (std::int64_t expert = 0; expert < in.experts; ++expert) {
    for (std::int64_t row = 0; row < in.rows; ++row) {
      for (std::int64_t group = 0; group < in.groups; ++group) {
        const ScaleIndex at = {.expert = expert, .row = row, .group = group};
        const std::int64_t offset = offset_of(in, at);
        ASSERT_GE(offset, 0);
        ASSERT_LT(offset, size);
        ++hits[static_cast<std::size_t>(offset)];
        ASSERT_EQ(index_of(in, offset), at) << expert << ", " << row << ", " << group;
      }
    }
  }
  // Whatever was not hit is beyond the extents by its own account.
  for (std::int64_t offset = 0; offset < size; ++offset) {
    const ScaleIndex at = index_of(in, offset);
    const bool within = at.expert < in.experts && at.row < in.rows && at.group < in.groups;
    ASSERT_EQ(hits[static_cast<std::size_t>(offset)], within ? 1 : 0) << "offset " << offset;
  }
}

// R53
TEST(ScaleLayoutTest, ColumnMajorScalesGoFromRowToRowFirst) {
  const ScaleExtents in = {.experts = 4, .rows = 1024, .groups = 56};

  EXPECT_EQ(ColumnMajorScaleOffset(in, {.expert = 0, .row = 1, .group = 0}), 1);
  EXPECT_EQ(ColumnMajorScaleOffset(in, {.expert = 0, .row = 0, .group = 1}), 1024);
  EXPECT_EQ(ColumnMajorScaleOffset(in, {.expert = 1, .row = 0, .group = 0}), 1024 * 56);
  EXPECT_EQ(ColumnMajorScaleOffset(in, {.expert = 2, .row = 3, .group = 5}),
            2 * 57344 + 5 * 1024 + 3);
  EXPECT_EQ(ColumnMajorScaleCount(in), 4 * 1024 * 56);
  for (const ScaleExtents& extents : kExtents) {
    ExpectBijection(extents, ColumnMajorScaleCount(extents), ColumnMajorScaleOffset,
                    ColumnMajorScaleIndex);
  }
}

// R53
TEST(ScaleLayoutTest, Ue8m0ExponentsFillAWordFromItsLowestByte) {
  const ScaleExtents in = {.experts = 4, .rows = 1024, .groups = 56};

  EXPECT_EQ(PackedUe8m0Offset(in, {.expert = 0, .row = 0, .group = 3}), 3);
  EXPECT_EQ(PackedUe8m0Offset(in, {.expert = 0, .row = 1, .group = 0}), 4);
  EXPECT_EQ(PackedUe8m0Offset(in, {.expert = 0, .row = 0, .group = 4}), 4096);
  EXPECT_EQ(PackedUe8m0Offset(in, {.expert = 1, .row = 0, .group = 0}), 4096 * 14);
  EXPECT_EQ(PackedUe8m0Offset(in, {.expert = 2, .row = 7, .group = 9}),
            2 * 57344 + 2 * 4096 + 7 * 4 + 1);
  EXPECT_EQ(PackedUe8m0Bytes(in), 4 * 1024 * 56);
  EXPECT_EQ(PackedUe8m0Bytes({.experts = 1, .rows = 3, .groups = 5}), 3 * 2 * 4);
  for (const ScaleExtents& extents : kExtents) {
    ExpectBijection(extents, PackedUe8m0Bytes(extents), PackedUe8m0Offset, PackedUe8m0Index);
  }
}

// R54: the address formula of dispatch-semantics 3.2, spelled out over the six dimensions.
TEST(ScaleLayoutTest, SwizzleIsTilesOfThirtyTwoByFourByFour) {
  const ScaleExtents in = {.experts = 3, .rows = 300, .groups = 10};
  const std::int64_t row_tiles = 3;
  const std::int64_t group_tiles = 3;

  for (std::int64_t e = 0; e < in.experts; ++e) {
    for (std::int64_t t = 0; t < in.rows; ++t) {
      for (std::int64_t j = 0; j < in.groups; ++j) {
        const std::int64_t want =
            ((((e * row_tiles + t / 128) * group_tiles + j / 4) * 32 + t % 128 % 32) * 4 +
             t % 128 / 32) *
                4 +
            j % 4;
        ASSERT_EQ(SwizzledScaleOffset(in, {.expert = e, .row = t, .group = j}), want);
      }
    }
  }
  for (const ScaleExtents& extents : kExtents) {
    ExpectBijection(extents, SwizzledScaleBytes(extents), SwizzledScaleOffset, SwizzledScaleIndex);
  }
}

// R54
TEST(ScaleLayoutTest, SwizzleHasItsGoldenAddresses) {
  const ScaleExtents in = {.experts = 2, .rows = 256, .groups = 448};  // hidden 7168

  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 0, .group = 3}), 3);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 1, .group = 0}), 16);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 32, .group = 0}), 4);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 127, .group = 3}), 511);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 0, .group = 4}), 512);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 0, .row = 128, .group = 0}), 512 * 112);
  EXPECT_EQ(SwizzledScaleOffset(in, {.expert = 1, .row = 0, .group = 0}), 512 * 112 * 2);
  EXPECT_EQ(SwizzledScaleBytes(in), 2 * 256 * 448);
  EXPECT_EQ(SwizzledScaleBytes({.experts = 1, .rows = 129, .groups = 5}), 2 * 2 * 512);
}

// R54
TEST(ScaleLayoutTest, LowNibbleIsTheEvenElement) {
  EXPECT_EQ(NibbleOf(0), (NibbleAt{.byte = 0, .shift = 0}));
  EXPECT_EQ(NibbleOf(1), (NibbleAt{.byte = 0, .shift = 4}));
  EXPECT_EQ(NibbleOf(7167), (NibbleAt{.byte = 3583, .shift = 4}));
  for (std::int64_t element = 0; element < 100; ++element) {
    EXPECT_EQ(ElementOf(NibbleOf(element)), element);
  }
}

}  // namespace
}  // namespace switchyard
