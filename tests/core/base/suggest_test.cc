#include "core/base/suggest.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(SuggestTest, FindsTheNearestWord) {
  const std::vector<std::string> known{"phase", "mode", "min_workers", "checkpoint"};

  EXPECT_EQ(NearestWord("mdoe", known), "mode");
  EXPECT_EQ(NearestWord("min-workers", known), "min_workers");
  EXPECT_EQ(NearestWord("MinWorkers", known), "min_workers");
  EXPECT_EQ(NearestWord("checkpiont", known), "checkpoint");
  EXPECT_EQ(NearestWord("phases", known), "phase");
  EXPECT_EQ(NearestWord("zebra", known), "");
  EXPECT_EQ(NearestWord("xy", {"ab"}), "");
  EXPECT_EQ(NearestWord(std::string(1000, 'a'), known), "");
}

TEST(SuggestTest, FindsWhatAWordBegins) {
  const std::vector<std::string> known{"w8a8", "fp8_block", "fp8_tensor", "awq"};

  EXPECT_EQ(WordBegunBy("fp8", known), "fp8_block");
  EXPECT_EQ(WordBegunBy("FP8-t", known), "fp8_tensor");
  EXPECT_EQ(WordBegunBy("fp", known), "");
  EXPECT_EQ(WordBegunBy("block", known), "");
  EXPECT_EQ(WordBegunBy("awq_more", known), "");
}

}  // namespace
}  // namespace switchyard
