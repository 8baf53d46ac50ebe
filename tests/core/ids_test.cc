#include "core/ids.h"

#include <set>
#include <type_traits>

#include "absl/hash/hash.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// The point of the header, held at compile time: indices of two kinds do not mix.
static_assert(!std::is_convertible_v<ExpertId, SlotId>);
static_assert(!std::is_convertible_v<int, ExpertId>);
static_assert(!std::is_convertible_v<ExpertId, int>);
static_assert(!std::is_convertible_v<SessionId, Incarnation>);

TEST(IdsTest, OrderByValue) {
  EXPECT_LT(ExpertId{-1}, ExpertId{0});
  EXPECT_LT(Epoch{9}, Epoch{10});
  EXPECT_EQ(StepId{}, StepId{0});
  EXPECT_LT((Incarnation{1, 9}), (Incarnation{2, 0}));
}

TEST(IdsTest, EqualIdsHashAlike) {
  EXPECT_EQ(absl::HashOf(LayerId{7}), absl::HashOf(LayerId{7}));
  EXPECT_NE(absl::HashOf(LayerId{7}), absl::HashOf(LayerId{8}));
  EXPECT_EQ(absl::HashOf(SessionId{1, 2}), absl::HashOf(SessionId{1, 2}));
  EXPECT_NE(absl::HashOf(SessionId{1, 2}), absl::HashOf(SessionId{2, 1}));
}

TEST(IdsTest, RandomIdsRoundTripThroughHex) {
  constexpr std::uint64_t kSeed = 3;
  SeededRng rng(kSeed);
  for (int i = 0; i < 100; ++i) {
    const auto id = rng.NextId<SessionId>();
    const std::string hex = ToHex(id);

    SY_ASSERT_OK_AND_ASSIGN(const SessionId back, RandomIdFromHex<SessionId>(hex));

    EXPECT_EQ(hex.size(), 32U);
    EXPECT_EQ(back, id) << "seed " << kSeed << " id " << hex;
  }
  EXPECT_EQ(ToHex(Incarnation{0x0123456789abcdefULL, 0xfULL}), "0123456789abcdef000000000000000f");
}

TEST(IdsTest, ReadsUpperCaseHexAndRefusesTheRest) {
  const std::string hex = "0123456789ABCDEF0123456789abcdef";
  std::string damaged = hex;
  damaged[5] = 'x';

  SY_ASSERT_OK_AND_ASSIGN(const auto id, RandomIdFromHex<Incarnation>(hex));

  EXPECT_EQ(id.high, id.low);
  EXPECT_EQ(RandomIdFromHex<Incarnation>(damaged).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RandomIdFromHex<Incarnation>(hex.substr(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RandomIdFromHex<Incarnation>(hex + "0").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(IdsTest, OnlyAllZeroIsEmpty) {
  EXPECT_TRUE(SessionId{}.empty());
  EXPECT_FALSE((SessionId{0, 1}).empty());
  EXPECT_FALSE((SessionId{1, 0}).empty());
}

}  // namespace
}  // namespace switchyard
