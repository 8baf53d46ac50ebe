#include "model/quant/layout/quant_layout.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(QuantLayoutTest, RowsStandInTheOrderOfTheirValuesUnderDifferentNames) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < AllQuantLayouts().size(); ++i) {
    const QuantLayoutInfo& row = AllQuantLayouts()[i];
    EXPECT_EQ(static_cast<std::size_t>(row.layout), i);
    EXPECT_EQ(&QuantLayoutInfoOf(row.layout), &row);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(AllQuantLayouts().back().layout, kLastQuantLayout);
}

TEST(QuantLayoutTest, SpellingsOfTheSameNumbersAreOneScheme) {
  const auto scheme = [](QuantLayout layout) { return SchemeOf({.layout = layout}); };

  EXPECT_EQ(scheme(QuantLayout::kBf16), QuantScheme::kNone);
  EXPECT_EQ(scheme(QuantLayout::kFp8Block), scheme(QuantLayout::kFp8BlockCompressed));
  EXPECT_EQ(scheme(QuantLayout::kNvfp4ModelOpt), scheme(QuantLayout::kNvfp4Compressed));
  EXPECT_EQ(scheme(QuantLayout::kInt8Channel), scheme(QuantLayout::kModelSlimW8A8));
  EXPECT_EQ(SchemeOf({.layout = QuantLayout::kFp8Tensor, .static_inputs = true}),
            QuantScheme::kFp8TensorStatic);
  EXPECT_EQ(SchemeOf({.layout = QuantLayout::kFp8Tensor}), QuantScheme::kFp8TensorDynamic);
}

// Every scheme but MXFP8, which no checkpoint of these families has, is some layout's.
TEST(QuantLayoutTest, EverySchemeHasALayout) {
  std::set<QuantScheme> schemes;
  for (const QuantLayoutInfo& row : AllQuantLayouts()) {
    schemes.insert(SchemeOf({.layout = row.layout}));
    schemes.insert(SchemeOf({.layout = row.layout, .static_inputs = true}));
  }
  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    EXPECT_EQ(schemes.contains(info.scheme), info.scheme != QuantScheme::kMxfp8) << info.name;
  }
}

}  // namespace
}  // namespace switchyard
