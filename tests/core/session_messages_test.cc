#include "core/session_messages.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(SessionMessagesTest, TransportNamesRoundTrip) {
  for (const auto choice : {TransportChoice::kAuto, TransportChoice::kShm, TransportChoice::kTcp,
                            TransportChoice::kInProcess}) {
    TransportChoice back{};
    ASSERT_TRUE(TransportChoiceFromName(TransportChoiceName(choice), &back));
    EXPECT_EQ(back, choice);
  }
  TransportChoice untouched = TransportChoice::kTcp;
  EXPECT_FALSE(TransportChoiceFromName("rdma", &untouched));
  EXPECT_EQ(untouched, TransportChoice::kTcp);
}

}  // namespace
}  // namespace switchyard
