#include "coordinator/sessions/group_table.h"

#include <chrono>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr TimePoint kNow{std::chrono::hours(1)};

OpenSessionRequest Source(std::int32_t source, std::int32_t sources, std::string name = "engine") {
  OpenSessionRequest request;
  request.deployment = "d";
  request.phase = Phase::kDecode;
  request.mode = DispatchMode::kLowLatency;
  request.max_tokens = 128;
  request.binding = BindingChoice::kCollective;
  request.group = {.name = std::move(name), .source = source, .sources = sources};
  return request;
}

class GroupTableTest : public ::testing::Test {
 protected:
  absl::StatusOr<GroupGrant> Claim(const OpenSessionRequest& request, std::uint64_t epoch = 3,
                                   TimePoint now = kNow, const Tenant* tenant = nullptr) {
    return table_.Claim(request, tenant, Epoch{epoch}, &rng_, now);
  }
  GroupId IdOf(const OpenSessionRequest& request, std::uint64_t epoch = 3, TimePoint now = kNow) {
    const auto grant = Claim(request, epoch, now);
    SY_EXPECT_OK(grant.status());
    return grant.ok() ? grant->id : GroupId();
  }
  SeededRng rng_{5};
  GroupTable table_;
};

TEST_F(GroupTableTest, SourcesThatNameTheSameGroupGetItsIdAndTheirOwnPlaces) {
  const GroupId id = IdOf(Source(1, 3));

  EXPECT_EQ(Claim(Source(0, 3)).value(), (GroupGrant{.id = id, .source = 0, .sources = 3}));
  EXPECT_NE(IdOf(Source(0, 3, "other")), id);
  OpenSessionRequest elsewhere = Source(0, 3);
  elsewhere.deployment = "e";
  EXPECT_NE(IdOf(elsewhere), id);
  EXPECT_EQ(Claim(Source(2, 3)).value(), (GroupGrant{.id = id, .source = 2, .sources = 3}));
}

TEST_F(GroupTableTest, OneAloneGetsAGroupOfItsOwnEachTime) {
  std::set<GroupId> ids;
  for (int i = 0; i < 4; ++i) ids.insert(IdOf(Source(0, 1, "")));
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_EQ(ids.count(GroupId()), 0U);
}

// All of them come back after a failure, in any order.
TEST_F(GroupTableTest, ASourceThatComesBackBeginsTheNextForming) {
  const GroupId first = IdOf(Source(0, 2));
  EXPECT_EQ(IdOf(Source(1, 2)), first);

  const GroupId second = IdOf(Source(1, 2));
  EXPECT_NE(second, first);
  EXPECT_EQ(IdOf(Source(0, 2)), second);

  // One that comes twice does so before the other has come once.
  const GroupId third = IdOf(Source(0, 2));
  const GroupId fourth = IdOf(Source(0, 2));
  EXPECT_NE(fourth, third);
  EXPECT_EQ(IdOf(Source(1, 2)), fourth);
}

TEST_F(GroupTableTest, AnotherEpochIsAnotherForming) {
  const GroupId first = IdOf(Source(0, 2), 3);
  EXPECT_NE(IdOf(Source(1, 2), 4), first);
}

// R40, and whatever else has to be alike.
TEST_F(GroupTableTest, SourcesThatMeanAnotherGroupAreRefusedWithBoth) {
  IdOf(Source(0, 2));
  OpenSessionRequest other = Source(1, 2);
  other.mode = DispatchMode::kNormal;
  const absl::Status mode = Claim(other).status();
  EXPECT_THAT(mode, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(mode.message()), HasSubstr("source 0"));
  EXPECT_THAT(std::string(mode.message()), HasSubstr("mode low_latency"));
  EXPECT_THAT(std::string(mode.message()), HasSubstr("source 1"));
  EXPECT_THAT(std::string(mode.message()), HasSubstr("mode normal"));
  other = Source(1, 2);
  other.max_tokens = 64;
  EXPECT_FALSE(Claim(other).ok());
  other = Source(1, 3);
  EXPECT_FALSE(Claim(other).ok());
  other = Source(1, 2);
  other.phase = Phase::kPrefill;
  EXPECT_FALSE(Claim(other).ok());
  other = Source(1, 2);
  other.source = DeviceKind::kCuda;
  EXPECT_FALSE(Claim(other).ok());
  SY_EXPECT_OK(Claim(Source(1, 2)).status());
}

TEST_F(GroupTableTest, AGroupThatStaysIncompleteIsForgotten) {
  IdOf(Source(0, 2));
  OpenSessionRequest other = Source(1, 2);
  other.max_tokens = 64;
  EXPECT_FALSE(Claim(other, 3, kNow + std::chrono::seconds(59)).ok());
  SY_EXPECT_OK(Claim(other, 3, kNow + std::chrono::seconds(61)).status());
}

TEST_F(GroupTableTest, ACallerLeavesRoomForOthers) {
  const auto of = [](const std::string& caller, std::size_t group) {
    OpenSessionRequest request = Source(0, 2, std::to_string(group));
    request.caller = caller;
    return request;
  };
  for (std::size_t g = 0; g < GroupTable::kGroupsOfCallerMax; ++g) {
    SY_ASSERT_OK(Claim(of("spiffe://d/a", g)).status());
  }
  const absl::Status full = Claim(of("spiffe://d/a", 99)).status();
  EXPECT_THAT(full, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  EXPECT_THAT(std::string(full.message()), HasSubstr("64 groups of spiffe://d/a wait"));
  SY_EXPECT_OK(Claim(of("spiffe://d/b", 99)).status());
}

// Sessions through a gateway are opened by the gateway's id, for the ids of its callers.
TEST_F(GroupTableTest, ATenantBehindAGatewayLeavesRoomForTheGatewaysOthers) {
  const Tenant red{.ids = {"spiffe://d/a", "spiffe://d/a2"}};
  const Tenant blue{.ids = {"spiffe://d/b"}};
  const auto of = [](const std::string& user, std::size_t group, std::int32_t source = 0) {
    OpenSessionRequest request = Source(source, 2, std::to_string(group));
    request.caller = "spiffe://d/gateway";
    request.on_behalf_of = user;
    return request;
  };
  for (std::size_t g = 0; g < GroupTable::kGroupsOfCallerMax; ++g) {
    SY_ASSERT_OK(Claim(of(red.ids[g % 2], g), 3, kNow, &red).status());
  }

  const absl::Status full = Claim(of("spiffe://d/a2", 99), 3, kNow, &red).status();

  EXPECT_THAT(full, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("64 groups of the tenant of spiffe://d/a2 wait"));
  // Of the same gateway, and a group of the same name is not the same group.
  SY_ASSERT_OK_AND_ASSIGN(const GroupGrant others, Claim(of("spiffe://d/b", 0), 3, kNow, &blue));
  SY_ASSERT_OK_AND_ASSIGN(const GroupGrant own, Claim(of("spiffe://d/a", 0, 1), 3, kNow, &red));
  EXPECT_NE(own.id, others.id);
}

TEST_F(GroupTableTest, FormingsAreBounded) {
  for (std::size_t g = 0; g < GroupTable::kGroupsMax; ++g) {
    SY_ASSERT_OK(Claim(Source(0, 2, std::to_string(g))).status());
  }
  EXPECT_THAT(Claim(Source(0, 2, "more")).status(),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  SY_EXPECT_OK(Claim(Source(1, 2, "7")).status());
}

}  // namespace
}  // namespace switchyard
