#include "core/group_messages.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(GroupMessagesTest, EveryBindingHasItsName) {
  EXPECT_EQ(BindingName(Binding::kP2p), "p2p");
  EXPECT_EQ(BindingName(Binding::kGateway), "gateway");
  EXPECT_EQ(BindingName(Binding::kCollective), "collective");
}

}  // namespace
}  // namespace switchyard
