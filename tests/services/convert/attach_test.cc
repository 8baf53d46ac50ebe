#include "services/convert/attach.h"

#include <string>
#include <variant>

#include "gtest/gtest.h"

#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRoundTrips;
using testing::kRounds;
using testing::kSeed;
using testing::RandomMessages;
using testing::ThroughBytes;

TEST(ConvertAttachTest, AttachMessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) -> AttachMessage {
    switch (random.rng().Below(3)) {
      case 0:
        return random.Attach();
      case 1:
        return BindRequest{Epoch{random.rng().Next()}, random.Digest(), random.Time()};
      default:
        return ReleaseRequest{Epoch{random.rng().Next()}};
    }
  });
  ExpectRoundTrips([](RandomMessages& random) -> AttachAnswer {
    switch (random.rng().Below(3)) {
      case 0:
        return AttachGrant{random.Ring(), random.Text(), random.Text()};
      case 1:
        return BindAnswer{Epoch{random.rng().Next()}, absl::OkStatus()};
      default:
        return BindAnswer{Epoch{random.rng().Next()}, random.Error()};
    }
  });
}

// The worker refuses it as not granted, which says more than a missing field.
TEST(ConvertAttachTest, ARequestWithoutASignatureIsUnderstood) {
  RandomMessages random(kSeed);
  v1::AttachRequest proto = ToProto(AttachMessage(random.Attach()));
  proto.mutable_open()->clear_grant_signature();

  SY_ASSERT_OK_AND_ASSIGN(const AttachMessage message, FromProto(proto));

  EXPECT_EQ(std::get<AttachRequest>(message).signature, GrantSignature{});
  proto.mutable_open()->set_grant_signature(std::string(33, 'x'));
  testing::ExpectRefuses(FromProto(proto), "AttachRequest.open.grant_signature");
}

TEST(ConvertAttachTest, CountersRoundTrip) {
  RandomMessages random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const AttachmentCounters counters = random.Counters();
    v1::AttachmentCounters proto;
    Encode(counters, &proto);

    AttachmentCounters back;
    Decoder at("AttachmentCounters");
    Decode(at, ThroughBytes(proto), &back);

    SY_ASSERT_OK(at.status());
    ASSERT_EQ(back, counters) << "round " << round;
  }
}

}  // namespace
}  // namespace switchyard
