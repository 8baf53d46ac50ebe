#include "coordinator/sessions/caller_use.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kA[] = "spiffe://d/a";
constexpr char kB[] = "spiffe://d/b";
const auto kFull = FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions);

TEST(CallerUseTest, IdsOfATenantShareItsSessions) {
  CallerUse use;
  const Tenant tenant{.name = "secret-name", .ids = {kA, kB}, .sessions_max = 2};
  const Tenant other{.name = "other", .ids = {"spiffe://d/c"}, .sessions_max = 1};
  const CallerUse::Share one = use.Take(kA, 8);
  CallerUse::Share two = use.Take(kB, 8);

  const absl::Status full = use.Check(&tenant, kA, 8);
  EXPECT_THAT(full, kFull);
  EXPECT_THAT(
      std::string(full.message()),
      AllOf(HasSubstr("the tenant of spiffe://d/a has 2 sessions open and may have 2"),
            HasSubstr("close sessions"), Not(HasSubstr("secret-name")), Not(HasSubstr(kB))));
  SY_EXPECT_OK(use.Check(&other, "spiffe://d/c", 8));
  SY_EXPECT_OK(use.Check(nullptr, kA, 8));

  two = CallerUse::Share();
  SY_EXPECT_OK(use.Check(&tenant, kA, 8));
}

TEST(CallerUseTest, LargestBatchesAddUp) {
  CallerUse use;
  const Tenant tenant{.name = "t", .ids = {kA}, .tokens_max = 100};
  CallerUse::Share first = use.Take(kA, 60);

  SY_EXPECT_OK(use.Check(&tenant, kA, 40));
  const absl::Status full = use.Check(&tenant, kA, 41);
  EXPECT_THAT(full, kFull);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("add up to 60, this one would add 41, and they may have 100"));

  const CallerUse::Share moved = std::move(first);
  EXPECT_THAT(use.Check(&tenant, kA, 41), kFull) << "a moved share counts once, and still";
  first = use.Take(kA, 40);
  EXPECT_THAT(use.Check(&tenant, kA, 1), kFull);
  first = CallerUse::Share();
  SY_EXPECT_OK(use.Check(&tenant, kA, 40));
}

TEST(CallerUseTest, ZeroIsNoneAndNothingSaidIsNoLimit) {
  CallerUse use;
  const Tenant closed{.ids = {kA}, .sessions_max = 0};
  EXPECT_THAT(use.Check(&closed, kA, 1), kFull);
  const Tenant open{.ids = {kA}};
  std::vector<CallerUse::Share> many;
  for (int i = 0; i < 1000; ++i) many.push_back(use.Take(kA, 1 << 30));
  SY_EXPECT_OK(use.Check(&open, kA, 1 << 30));
}

TEST(CallerUseTest, AnIdThatMovesTakesWhatItHasOpenAlong) {
  CallerUse use;
  const CallerUse::Share one = use.Take(kA, 1);
  const Tenant later{.name = "later", .ids = {kA, kB}, .sessions_max = 1};

  EXPECT_THAT(use.Check(&later, kB, 1), kFull);
}

TEST(CallerUseTest, NobodyIsNotCounted) {
  CallerUse use;
  const CallerUse::Share none = use.Take("", 8);
  EXPECT_EQ(none.id(), "");
  const Tenant odd{.ids = {""}, .sessions_max = 1};
  SY_EXPECT_OK(use.Check(&odd, "", 8));
}

TEST(CallerUseTest, APausedShareIsNotCountedAndComesBackWhateverTheLimit) {
  CallerUse use;
  const Tenant tenant{.ids = {"a"}, .sessions_max = 1};
  CallerUse::Share first = use.Take("a", 8);
  first.Pause();
  first.Pause();
  SY_EXPECT_OK(use.Check(&tenant, "a", 1));
  CallerUse::Share second = use.Take("a", 8);
  first.Resume();
  first.Resume();

  second = {};

  EXPECT_THAT(use.Check(&tenant, "a", 1), kFull) << "the first is counted once";
  first.Pause();
  first = {};
  SY_EXPECT_OK(use.Check(&tenant, "a", 1));
}

TEST(CallerUseTest, WhatReturnsHasABoundOfItsOwn) {
  CallerUse use;
  const Tenant tenant{.ids = {"a", "b"}, .sessions_max = 0, .tokens_max = 0};
  std::vector<CallerUse::Share> shares;
  for (std::uint64_t i = 0; i < CallerUse::kReturnedMax; ++i) {
    SY_ASSERT_OK(use.CheckReturn(&tenant, "a", 8));
    shares.push_back(use.Take(i % 2 == 0 ? "a" : "b", 8));
  }

  EXPECT_THAT(use.CheckReturn(&tenant, "a", 8), kFull);
  SY_EXPECT_OK(use.CheckReturn(nullptr, "a", 8));
  const Tenant free{.ids = {"a", "b"}};
  SY_EXPECT_OK(use.CheckReturn(&free, "a", 8)) << "within its limits, which are none";
}

}  // namespace
}  // namespace switchyard
