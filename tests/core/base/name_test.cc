#include "core/base/name.h"

#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(NameTest, HasLettersDigitsAndFewSigns) {
  for (const char* name : {"w0", "a", "-", "Prefill.pool_7-b"}) EXPECT_TRUE(IsName(name)) << name;
  EXPECT_TRUE(IsName(std::string(kNameMax, 'n')));
  for (const char* text : {"", "a b", "a/b", "a\n", "\"a\"", "\u00e9", "a:b"}) {
    EXPECT_FALSE(IsName(text)) << text;
  }
  EXPECT_FALSE(IsName(std::string(kNameMax + 1, 'n')));
}

}  // namespace
}  // namespace switchyard
