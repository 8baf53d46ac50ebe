#include "model/quant/layout/quant_layout.h"

#include <algorithm>
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

bool Lists(const QuantLayoutInfo& row, TensorRole role) {
  return std::any_of(row.tensors.begin(), row.tensors.end(),
                     [&](const LayoutTensor& tensor) { return tensor.role == role; });
}

// Decoders and scales look tensors up by role and rely on finding them.
TEST(QuantLayoutTest, EveryRowListsTheTensorsThatItsFieldsRead) {
  for (const QuantLayoutInfo& row : AllQuantLayouts()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(Lists(row, TensorRole::kWeight));
    EXPECT_EQ(Lists(row, TensorRole::kScale), row.scale_unit != ScaleUnit::kNone);
    EXPECT_EQ(Lists(row, TensorRole::kScaleSecond), row.scale_unit == ScaleUnit::kRowAndGroup);
    EXPECT_EQ(Lists(row, TensorRole::kGlobalScale), row.global_scale != GlobalScale::kNone);
    EXPECT_EQ(row.multiples.rows % row.decoder.rows, 0) << "strips of rows must come out even";
    EXPECT_EQ(row.largest_code > 0, row.scale_unit != ScaleUnit::kNone);
    for (const char* forbidden : row.forbidden) {
      for (const LayoutTensor& tensor : row.tensors) EXPECT_STRNE(tensor.suffix, forbidden);
    }
  }
}

// A layout rounds rows to one of the formats that its scheme announces to plans.
TEST(QuantLayoutTest, ActivationsAreThoseOfTheScheme) {
  for (const QuantLayoutInfo& row : AllQuantLayouts()) {
    for (const bool inputs : {false, true}) {
      for (const bool powers : {false, true}) {
        const ProjectionQuant quant{
            .layout = row.layout, .static_inputs = inputs, .power_of_two_scales = powers};
        const auto formats = ActivationFormatsOf(SchemeOf(quant));
        const ActivationFormat format = ActivationFormatOf(quant);
        if (formats.empty()) {
          EXPECT_EQ(format, ActivationFormat::kBf16) << row.name;
        } else {
          EXPECT_NE(std::find(formats.begin(), formats.end(), format), formats.end()) << row.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
