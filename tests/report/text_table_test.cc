#include "report/text_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

TEST(TextTableTest, AlignsColumnsAndLeavesNoBlanksAtLineEnds) {
  TextTable table({"NAME", "N", "TEXT"});
  table.Add({"a", "1000", "x"});
  table.Add({"longer", "2", ""});
  table.Add({"short row"});

  EXPECT_EQ(table.Print("  "),
            "  NAME       N     TEXT\n"
            "  a          1000  x\n"
            "  longer     2     -\n"
            "  short row  -     -\n");
  EXPECT_EQ(table.rows(), 3U);
}

TEST(TextTableTest, CountsCharactersAndNotBytes) {
  TextTable table({"NAME", "N"});
  table.Add({"zürich-ß", "1"});
  table.Add({"12345678", "2"});

  EXPECT_EQ(table.Print(), "NAME      N\nzürich-ß  1\n12345678  2\n");
}

TEST(TextTableTest, WrapsTheLastColumnUnderItself) {
  TextTable table({"K", "BECAUSE"});
  table.Add({"a", "one two three four five six seven\nnext"});

  EXPECT_EQ(table.Print("", 30),
            "K  BECAUSE\n"
            "a  one two three four five six\n"
            "   seven\n"
            "   next\n");
}

TEST(TextTableTest, ANarrowTerminalStillShowsTheLastColumn) {
  TextTable table({"A COLUMN THAT IS WIDE", "BECAUSE"});
  table.Add({"a", "some words that go on"});

  EXPECT_EQ(table.Print("", 10),
            "A COLUMN THAT IS WIDE  BECAUSE\n"
            "a                      some words that go on\n");
}

TEST(BulletsTest, WrapsItemsUnderThemselves) {
  EXPECT_EQ(Bullets({"one two three four five six seven", "eight"}, "  ", 30),
            "  - one two three four five\n"
            "    six seven\n"
            "  - eight\n");
  EXPECT_EQ(Bullets({}, "  ", 30), "");
}

TEST(WrapWordsTest, GivesALongWordALineOfItsOwn) {
  EXPECT_THAT(WrapWords("a bbbbbbbb cc", 4), ElementsAre("a", "bbbbbbbb", "cc"));
  EXPECT_THAT(WrapWords("", 4), ElementsAre(""));
  EXPECT_THAT(WrapWords("a b\nc", 0), ElementsAre("a b", "c"));
}

}  // namespace
}  // namespace switchyard
