#include "core/quant_scheme.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(QuantSchemeTest, UnquantisedWeightsTravelAsBf16) {
  const QuantSchemeInfo info = QuantSchemeInfoOf(QuantScheme::kNone);

  EXPECT_EQ(info.scheme, QuantScheme::kNone);
  EXPECT_EQ(info.preferred, DispatchDtype::kBf16);
}

TEST(QuantSchemeTest, EverySchemeAcceptsWhatItPrefers) {
  const QuantSchemeInfo info = QuantSchemeInfoOf(QuantScheme::kNone);

  EXPECT_NE(std::find(info.accepts.begin(), info.accepts.end(), info.preferred),
            info.accepts.end());
}

TEST(QuantSchemeTest, NamesAreRead) {
  EXPECT_EQ(QuantSchemeFromName("none"), QuantScheme::kNone);
  EXPECT_EQ(QuantSchemeFromName("fp9"), std::nullopt);
}

}  // namespace
}  // namespace switchyard
