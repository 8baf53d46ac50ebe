#include "worker/source/source_pool.h"

#include <memory>
#include <set>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

class SourcePoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Source> Make() {
    SourceOptions options;
    options.clock = &clock_;
    return Source::Create(std::move(options));
  }
  // `made_` counts; after `most` there are no more.
  SourcePool::MakeSource Further(int most = 100) {
    return [this, most]() -> absl::StatusOr<std::unique_ptr<Source>> {
      if (made_ == most) {
        return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "no more");
      }
      ++made_;
      return Make();
    };
  }

  SteadyClock clock_;
  int made_ = 0;
};

TEST_F(SourcePoolTest, EachSessionGetsASourceOfItsOwn) {
  SourcePool pool(Make(), Further());
  std::vector<std::shared_ptr<Source>> held;
  std::set<Source*> different;
  for (std::size_t i = 0; i < kSourcesMax; ++i) {
    held.push_back(pool.Take());
    different.insert(held.back().get());
  }

  EXPECT_EQ(different.size(), kSourcesMax);
  EXPECT_EQ(made_, static_cast<int>(kSourcesMax) - 1);
}

TEST_F(SourcePoolTest, ASessionThatFollowsAnotherUsesItsSource) {
  SourcePool pool(Make(), Further());
  const Source* const first = pool.Take().get();

  EXPECT_EQ(pool.Take().get(), first);
  EXPECT_EQ(made_, 0);
}

TEST_F(SourcePoolTest, MoreSessionsShareTheSourceWithTheFewest) {
  SourcePool pool(Make(), Further());
  std::vector<std::shared_ptr<Source>> held;
  for (std::size_t i = 0; i < 2 * kSourcesMax; ++i) held.push_back(pool.Take());
  const Source* const freed = held[1].get();
  for (std::shared_ptr<Source>& each : held) {
    if (each.get() == freed) each.reset();
  }

  EXPECT_EQ(pool.Take().get(), freed);
  EXPECT_EQ(made_, static_cast<int>(kSourcesMax) - 1);
}

TEST_F(SourcePoolTest, ASourceThatCannotBeMadeIsDoneWithout) {
  SourcePool pool(Make(), Further(1));

  const auto a = pool.Take();
  const auto b = pool.Take();
  const auto c = pool.Take();

  EXPECT_NE(a, b);
  EXPECT_TRUE(c == a || c == b);
}

TEST_F(SourcePoolTest, WithoutFurtherOnesAllShareTheFirst) {
  SourcePool pool(Make(), nullptr);

  EXPECT_EQ(pool.Take(), pool.Take());
  EXPECT_EQ(pool.stats().links_open, 0U);
}

}  // namespace
}  // namespace switchyard
