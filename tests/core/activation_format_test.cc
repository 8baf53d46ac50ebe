#include "core/activation_format.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(ActivationFormatTest, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const ActivationFormat format : AllActivationFormats()) {
    names.insert(std::string(ActivationFormatName(format)));
  }
  EXPECT_EQ(names.size(), AllActivationFormats().size());
  EXPECT_EQ(AllActivationFormats().back(), kLastActivationFormat);
}

// quant_scheme.h names the coarsest of a scheme's formats.
TEST(ActivationFormatTest, AgreesWithTheCoarsenessOfTheScheme) {
  for (const QuantSchemeInfo& row : AllQuantSchemes()) {
    if (row.scheme == QuantScheme::kMxfp8) continue;  // groups of 32: none of these
    ActivationQuant coarsest = ActivationQuant::kNone;
    for (const ActivationFormat format : ActivationFormatsOf(row.scheme)) {
      ActivationQuant quant = ActivationQuant::kNone;
      switch (format) {
        case ActivationFormat::kBf16:
          break;
        case ActivationFormat::kFp8Group:
        case ActivationFormat::kFp8GroupPow2:
          quant = ActivationQuant::kFp8Group;
          break;
        case ActivationFormat::kInt8Row:
          quant = ActivationQuant::kInt8Token;
          break;
        case ActivationFormat::kNvfp4:
          quant = ActivationQuant::kNvfp4Group;
          break;
        case ActivationFormat::kFp8Row:
        case ActivationFormat::kFp8Static:
          quant = ActivationQuant::kFp8Row;
          break;
        case ActivationFormat::kInt4Row:
          quant = ActivationQuant::kInt4Token;
          break;
      }
      coarsest = std::max(coarsest, quant);
    }
    EXPECT_EQ(coarsest, row.activations) << row.name;
  }
}

}  // namespace
}  // namespace switchyard
