#include "services/security/table_watch.h"

#include <memory>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

absl::Status Wrong() {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, "wrong", {});
}

TEST(TableWatchTest, LooksAgainAtMostOnceASecond) {
  const auto clock = std::make_shared<ManualClock>();
  int loads = 0;
  SY_ASSERT_OK_AND_ASSIGN(
      const auto watch,
      TableWatch::Create(
          [&loads] {
            ++loads;
            return IdentityTable::Create(
                {{loads == 1 ? "spiffe://d/a" : "spiffe://d/b", {Role::kWorker}}});
          },
          clock, nullptr));
  const std::shared_ptr<const IdentityTable> first = watch->Now();
  EXPECT_NE(first->Find("spiffe://d/a"), nullptr);
  EXPECT_EQ(watch->Now(), first);
  EXPECT_EQ(loads, 1);
  clock->Advance(TableWatch::kInterval);
  EXPECT_NE(watch->Now()->Find("spiffe://d/b"), nullptr);
  EXPECT_EQ(watch->Now()->Find("spiffe://d/a"), nullptr);
  EXPECT_EQ(loads, 2);
  // Whoever holds the old one keeps it.
  EXPECT_NE(first->Find("spiffe://d/a"), nullptr);
}

TEST(TableWatchTest, KeepsTheLastTableThatWasRight) {
  const auto clock = std::make_shared<ManualClock>();
  bool right = true;
  SY_ASSERT_OK_AND_ASSIGN(const auto watch,
                          TableWatch::Create(
                              [&right]() -> absl::StatusOr<IdentityTable> {
                                if (!right) return Wrong();
                                return IdentityTable::Create({{"spiffe://d/a", {Role::kWorker}}});
                              },
                              clock, nullptr));
  right = false;
  clock->Advance(TableWatch::kInterval);
  EXPECT_NE(watch->Now()->Find("spiffe://d/a"), nullptr);
}

TEST(TableWatchTest, BeginsWithARightTableOrNotAtAll) {
  EXPECT_THAT(TableWatch::Create([]() -> absl::StatusOr<IdentityTable> { return Wrong(); },
                                 std::make_shared<ManualClock>(), nullptr)
                  .status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
