#include "services/convert/group.h"

#include <string>

#include "gtest/gtest.h"

#include "services/convert/session.h"
#include "tests/services/convert/convert_testing.h"
#include "tests/services/convert/random_messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::ExpectRefuses;
using testing::ExpectRoundTrips;
using testing::kSeed;
using testing::RandomMessages;

template <typename Keys>
Keys RandomKeys(RandomMessages& random) {
  return {.keys = {random.Text(), random.Text()},
          .log = random.Text(),
          .group = static_cast<std::uint32_t>(random.rng().Below(256))};
}

GroupGrant RandomPlace(RandomMessages& random) {
  return {.id = random.rng().NextId<GroupId>(),
          .source = static_cast<std::int32_t>(random.rng().Below(8)),
          .sources = static_cast<std::int32_t>(random.rng().Below(8)),
          .hosts = {random.Text(), "", random.Text()},
          .in_step = random.rng().Below(2) == 0};
}

// Without what does not count.
JoinRequest RandomJoin(RandomMessages& random) {
  JoinRequest request{.attach = random.Attach(),
                      .group = RandomPlace(random),
                      .source = DeviceKind::kCuda,
                      .combine_dtype = DispatchDtype::kFp8,
                      .key = random.Text(),
                      .logs = {random.Text(), random.Text()}};
  request.attach.transport = TransportChoice::kAuto;
  request.attach.reply_ring = {};
  request.attach.request_slot_bytes = 0;
  return request;
}

TEST(ConvertGroupTest, MessagesRoundTrip) {
  ExpectRoundTrips([](RandomMessages& random) -> GroupMessage {
    switch (random.rng().Below(4)) {
      case 0:
        return RandomJoin(random);
      case 1:
        return RandomKeys<GroupKeys>(random);
      case 2:
        return BindRequest{Epoch{random.rng().Next()}, random.Digest(), random.Time()};
      default:
        return ReleaseRequest{Epoch{random.rng().Next()}};
    }
  });
  ExpectRoundTrips([](RandomMessages& random) -> GroupAnswer {
    switch (random.rng().Below(4)) {
      case 0:
        return JoinAnswer{.key = random.Text(), .log = random.Text()};
      case 1:
        return RandomKeys<SourceKeys>(random);
      case 2:
        return GroupReady{};
      default:
        return BindAnswer{Epoch{random.rng().Next()}, random.Error()};
    }
  });
}

TEST(ConvertGroupTest, WhatIsMissingOrOfAnotherVersionIsRefused) {
  RandomMessages random(kSeed);
  v1::JoinGroupRequest join = ToProto(GroupMessage(RandomJoin(random)));
  join.mutable_open()->clear_place();
  ExpectRefuses(FromProto(join), "JoinGroupRequest.open.place");
  join = ToProto(GroupMessage(RandomJoin(random)));
  join.mutable_open()->clear_session();
  ExpectRefuses(FromProto(join), "JoinGroupRequest.open.session");
  join.mutable_open()->set_protocol_version(77);
  EXPECT_THAT(FromProto(join).status(),
              testing::FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  ExpectRefuses(FromProto(v1::JoinGroupRequest()), "JoinGroupRequest.message");
  ExpectRefuses(FromProto(v1::JoinGroupResponse()), "JoinGroupResponse.message");
}

TEST(ConvertGroupTest, ASessionSaysItsBindingAndItsGroup) {
  OpenSessionRequest request;
  request.binding = BindingChoice::kCollective;
  request.group = {.name = "engine", .source = 1, .sources = 4, .hosts = {"w0", "", "w1", "w2"}};
  SY_ASSERT_OK_AND_ASSIGN(const OpenSessionRequest back, FromProto(ToProto(request)));
  EXPECT_EQ(back, request);
}

}  // namespace
}  // namespace switchyard
