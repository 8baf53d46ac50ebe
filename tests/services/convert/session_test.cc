#include "services/convert/session.h"

#include "gtest/gtest.h"

#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRoundTrips;
using testing::RandomMessages;

TEST(ConvertSessionTest, SessionMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.Order(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.Grant(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.Watch(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.News(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.rng().NextId<SessionId>(); });
}

TEST(ConvertSessionTest, AnOrderThatNamesNothingGetsTheDocumentedDefaults) {
  v1::OpenSessionRequest proto;
  proto.mutable_options();

  SY_ASSERT_OK_AND_ASSIGN(const OpenSessionRequest order, FromProto(proto));

  EXPECT_EQ(order, OpenSessionRequest{});
  EXPECT_EQ(order.phase, Phase::kMixed);
  EXPECT_EQ(order.y_dtype, OutputDtype::kF32);
  EXPECT_EQ(order.mode, std::nullopt);
}

}  // namespace
}  // namespace switchyard
