#include "core/format/wire_format.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr DispatchDtype kDtypes[] = {DispatchDtype::kBf16, DispatchDtype::kFp8,
                                     DispatchDtype::kInt8, DispatchDtype::kNvfp4};

TEST(WireFormatTest, NamesRoundTripAndAreUnique) {
  std::set<std::string> names;
  for (const NamedWireFormat& row : WireFormats()) {
    EXPECT_EQ(WireFormatName(row.format), row.name);
    EXPECT_EQ(WireFormatFromName(row.name), row.format);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(WireFormatFromName("fp8_e5m2"), std::nullopt);
  EXPECT_EQ(WireFormatName({DispatchDtype::kFp8, ScaleKind::kF32, 64}), "unnamed");
}

TEST(WireFormatTest, EveryDtypeHasADefaultNamedAsItself) {
  for (const DispatchDtype dtype : kDtypes) {
    EXPECT_EQ(DefaultWireFormat(dtype).dtype, dtype);
    EXPECT_EQ(WireFormatName(DefaultWireFormat(dtype)), DispatchDtypeName(dtype));
  }
  EXPECT_EQ(DefaultWireFormat(DispatchDtype::kFp8).scale, ScaleKind::kF32);
}

// A header's byte: dtypes by default format as they are numbered, scales of another kind above.
TEST(WireFormatTest, CodesTellEveryFormatOfTheTable) {
  EXPECT_EQ(WireFormatCode(kFp8Format), 0x01);
  EXPECT_EQ(WireFormatCode(kFp8Ue8m0Format), 0x21);
  int known = 0;
  for (int code = 0; code < 256; ++code) {
    const auto format = WireFormatFromCode(static_cast<std::uint8_t>(code));
    if (!format.has_value()) continue;
    ++known;
    EXPECT_EQ(WireFormatCode(*format), code);
    EXPECT_NE(WireFormatName(*format), "unnamed");
  }
  EXPECT_EQ(known, static_cast<int>(WireFormats().size()));
  for (const DispatchDtype dtype : kDtypes) {
    EXPECT_EQ(WireFormatCode(DefaultWireFormat(dtype)), static_cast<std::uint8_t>(dtype));
  }
}

// R33, R127: the payload bytes of dispatch-semantics 1.6, by formula and at hidden 7168.
TEST(WireFormatTest, RowBytesAreThoseOfTheSpecification) {
  for (const std::int64_t h : {128, 2048, 7168, 8192}) {
    EXPECT_EQ(RowBytesOf(kBf16Format, h).total(), 2 * h);
    EXPECT_EQ(RowBytesOf(kFp8Format, h).total(), h + 4 * h / 128);
    EXPECT_EQ(RowBytesOf(kFp8Ue8m0Format, h).total(), h + h / 128);
    EXPECT_EQ(RowBytesOf(kInt8Format, h).total(), h + 4);
    EXPECT_EQ(RowBytesOf(kNvfp4Format, h).total(), h / 2 + h / 16);
  }
  EXPECT_EQ(RowBytesOf(kBf16Format, 7168).total(), 14336);
  EXPECT_EQ(RowBytesOf(kFp8Format, 7168).total(), 7392);
  EXPECT_EQ(RowBytesOf(kFp8Ue8m0Format, 7168).total(), 7224);
  EXPECT_EQ(RowBytesOf(kInt8Format, 7168).total(), 7172);
  EXPECT_EQ(RowBytesOf(kNvfp4Format, 7168).total(), 4032);
}

TEST(WireFormatTest, DtypeAloneMeansItsDefaultFormat) {
  for (const DispatchDtype dtype : kDtypes) {
    for (const std::int64_t hidden : {1, 17, 129, 4096}) {
      const RowBytes bytes = RowBytesOf(DefaultWireFormat(dtype), hidden);
      EXPECT_EQ(RowBytesOf(dtype, hidden).data, bytes.data);
      EXPECT_EQ(RowBytesOf(dtype, hidden).scales, bytes.scales);
    }
  }
}

TEST(WireFormatTest, ShortLastGroupsHaveAScaleLikeAnyOther) {
  EXPECT_EQ(ScalesPerRow(kFp8Ue8m0Format, 1), 1);
  EXPECT_EQ(ScalesPerRow(kFp8Ue8m0Format, 128), 1);
  EXPECT_EQ(ScalesPerRow(kFp8Ue8m0Format, 129), 2);
  EXPECT_EQ(ScalesPerRow(kNvfp4Format, 17), 2);
  EXPECT_EQ(ScalesPerRow(kInt8Format, 8191), 1);
  EXPECT_EQ(ScalesPerRow(kBf16Format, 8191), 0);
  EXPECT_EQ(RowBytesOf(kNvfp4Format, 17).data, 9);
}

// A format without a name of its own yet: E4M3 with a power of two for each 32, as MXFP8.
TEST(WireFormatTest, SizesAnyGroupAndScaleKind) {
  const WireFormat mx = {DispatchDtype::kFp8, ScaleKind::kUe8m0, 32};

  EXPECT_EQ(RowBytesOf(mx, 7168).total(), 7168 + 7168 / 32);
  EXPECT_EQ(RowBytesOf(mx, 33).scales, 2);
}

}  // namespace
}  // namespace switchyard
