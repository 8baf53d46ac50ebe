#include "core/format/nibbles.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// R54
TEST(NibblesTest, LowNibbleIsTheEvenElement) {
  EXPECT_EQ(NibbleOf(0), (NibbleAt{.byte = 0, .shift = 0}));
  EXPECT_EQ(NibbleOf(1), (NibbleAt{.byte = 0, .shift = 4}));
  EXPECT_EQ(NibbleOf(7167), (NibbleAt{.byte = 3583, .shift = 4}));
  std::set<std::pair<std::int64_t, int>> seen;
  for (std::int64_t element = 0; element < 100; ++element) {
    const NibbleAt at = NibbleOf(element);
    EXPECT_LT(at.byte, 50);
    EXPECT_TRUE(seen.insert({at.byte, at.shift}).second) << element;
  }
}

}  // namespace
}  // namespace switchyard
