#include "core/format/dtype.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(DtypeTest, NamesRoundTrip) {
  for (const auto dtype :
       {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8, DispatchDtype::kNvfp4}) {
    EXPECT_EQ(DispatchDtypeFromName(DispatchDtypeName(dtype)), dtype);
  }
  EXPECT_EQ(DispatchDtypeFromName("auto"), std::nullopt);
  EXPECT_EQ(OutputDtypeName(OutputDtype::kBf16), "bf16");
  EXPECT_EQ(OutputDtypeName(OutputDtype::kF32), "f32");
}

// Payload bytes of a token at hidden 7168, from the table of wire sizes: data and scales.
TEST(DtypeTest, RowBytesCountScales) {
  EXPECT_EQ(RowBytesOf(DispatchDtype::kBf16, 7168).total(), 14336);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kFp8, 7168).total(), 7392);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kInt8, 7168).total(), 7172);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kNvfp4, 7168).total(), 4032);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kFp8, 7168).scales, 224);
}

TEST(DtypeTest, PartialGroupsTakeAWholeScale) {
  EXPECT_EQ(RowBytesOf(DispatchDtype::kFp8, 129).data, 129);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kFp8, 129).scales, 8);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kNvfp4, 17).data, 9);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kNvfp4, 17).scales, 2);
  EXPECT_EQ(RowBytesOf(DispatchDtype::kBf16, 1).total(), 2);
}

}  // namespace
}  // namespace switchyard
