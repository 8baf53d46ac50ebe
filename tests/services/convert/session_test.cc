#include "services/convert/session.h"

#include <string>

#include "gtest/gtest.h"

#include "core/protocol_version.h"
#include "services/convert/attach.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRoundTrips;
using testing::RandomMessages;

TEST(ConvertSessionTest, SessionMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) { return random.Order(); });
  ExpectRoundTrips([](RandomMessages& random) {
    OpenSessionRequest order = random.Order();
    order.on_behalf_of = random.Text();
    return order;
  });
  ExpectRoundTrips([](RandomMessages& random) { return random.Grant(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.Watch(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.News(); });
  ExpectRoundTrips([](RandomMessages& random) { return random.rng().NextId<SessionId>(); });
}

TEST(ConvertSessionTest, AnOrderThatNamesNothingGetsTheDocumentedDefaults) {
  v1::OpenSessionRequest proto;
  proto.mutable_options();
  proto.set_protocol_version(kProtocolVersion);

  SY_ASSERT_OK_AND_ASSIGN(const OpenSessionRequest order, FromProto(proto));

  EXPECT_EQ(order, OpenSessionRequest{});
  EXPECT_EQ(order.phase, Phase::kMixed);
  EXPECT_EQ(order.y_dtype, OutputDtype::kF32);
  EXPECT_EQ(order.mode, std::nullopt);
}

// What a gateway's caller and a status show of a grant.
TEST(ConvertSessionTest, AGrantByItselfHasNoSecrets) {
  RandomMessages random(7);
  const SessionGrant grant = random.Grant();
  v1::SessionGrant proto;

  Encode(grant, &proto);

  SessionGrant shown;
  Decoder at("SessionGrant");
  Decode(at, proto, &shown);
  SY_ASSERT_OK(at.status());
  EXPECT_EQ(shown.cookie, Cookie{});
  EXPECT_EQ(shown.signature, GrantSignature{});
  const std::string bytes = proto.SerializeAsString();
  const auto& secret = grant.signature.bytes;
  EXPECT_EQ(bytes.find(std::string(secret.begin(), secret.end())), std::string::npos);
}

// Who calls is what the connection says, never what a message does.
TEST(ConvertSessionTest, TheCallerIsNoPartOfAMessage) {
  RandomMessages random(9);
  OpenSessionRequest order = random.Order();
  order.caller = "spiffe://d/posing";
  EXPECT_EQ(ToProto(order).SerializeAsString().find("posing"), std::string::npos);
  WatchRequest watch = random.Watch();
  watch.caller = order.caller;
  EXPECT_EQ(ToProto(watch).SerializeAsString().find("posing"), std::string::npos);
  AttachRequest attach = random.Attach();
  attach.caller = order.caller;
  EXPECT_EQ(ToProto(AttachMessage(attach)).SerializeAsString().find("posing"), std::string::npos);
}

TEST(ConvertSessionTest, AGrantNeedsItsSignature) {
  RandomMessages random(8);
  v1::OpenSessionResponse proto = ToProto(random.Grant());
  proto.set_grant_signature("short");

  testing::ExpectRefuses(FromProto(proto), "OpenSessionResponse.grant_signature");
}

}  // namespace
}  // namespace switchyard
