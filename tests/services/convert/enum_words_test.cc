#include "services/convert/enum_words.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {
namespace {

TEST(EnumWordsTest, AreLowerCaseWithoutThePrefixOfTheirType) {
  EXPECT_EQ(EnumWord(v1::DISPATCH_MODE_LOW_LATENCY), "low_latency");
  EXPECT_EQ(EnumWord(v1::WORKER_STATE_DISCONNECTED), "disconnected");
  EXPECT_EQ(EnumWord(v1::PHASE_UNSPECIFIED), "");
}

TEST(EnumWordsTest, ANumberOfALaterVersionPrintsAsItself) {
  EXPECT_EQ(EnumWord(static_cast<v1::Phase>(77)), "77");
}

TEST(EnumWordsTest, ListEveryValueButNotSet) {
  EXPECT_THAT(EnumWords(*v1::Phase_descriptor()),
              ::testing::ElementsAre("prefill", "decode", "mixed"));
}

}  // namespace
}  // namespace switchyard
