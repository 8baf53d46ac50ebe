#include "core/resolve/dtype_override.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr auto kFp8 = DispatchDtype::kFp8;

// In ascending order of how specific they are.
std::vector<DtypeOverride> Wishes() {
  const LayerId layer{3};
  return {
      {"", {}, {}, kFp8, "deployment"},
      {"", {}, Phase::kDecode, kFp8, "phase"},
      {"m", {}, {}, kFp8, "model"},
      {"m", {}, Phase::kDecode, kFp8, "model, phase"},
      {"", layer, {}, kFp8, "layer"},
      {"", layer, Phase::kDecode, kFp8, "layer, phase"},
      {"m", layer, {}, kFp8, "model, layer"},
      {"m", layer, Phase::kDecode, kFp8, "model, layer, phase"},
  };
}

TEST(DtypeOverrideTest, TheMostSpecificWinsInWhateverOrderTheyAreWritten) {
  const std::uint64_t seed = 4;
  SeededRng rng(seed);
  const std::vector<DtypeOverride> all = Wishes();
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    std::vector<std::size_t> picked;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (rng.Below(2) == 0) picked.push_back(i);
    }
    if (picked.empty()) continue;
    const std::string best = all[picked.back()].source;
    std::vector<DtypeOverride> wishes;
    while (!picked.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(rng.Below(picked.size()));
      wishes.push_back(all[picked[static_cast<std::size_t>(at)]]);
      picked.erase(picked.begin() + at);
    }

    SY_ASSERT_OK_AND_ASSIGN(const DtypeOverride* wish,
                            PickOverride(wishes, {"m", LayerId{3}, Phase::kDecode}));

    ASSERT_NE(wish, nullptr);
    EXPECT_EQ(wish->source, best);
  }
}

TEST(DtypeOverrideTest, OthersAreNotMeant) {
  const auto source = [](const OverridePlace& place) {
    const std::vector<DtypeOverride> wishes = Wishes();
    const auto wish = PickOverride(wishes, place);
    return wish.ok() && *wish != nullptr ? (*wish)->source : "none";
  };

  EXPECT_EQ(source({"n", LayerId{3}, Phase::kDecode}), "layer, phase");
  EXPECT_EQ(source({"m", LayerId{4}, Phase::kDecode}), "model, phase");
  EXPECT_EQ(source({"m", LayerId{4}, Phase::kPrefill}), "model");
  EXPECT_EQ(source({"n", LayerId{4}, Phase::kPrefill}), "deployment");
  const std::vector<DtypeOverride> narrow{{"", LayerId{3}, {}, kFp8, "layer"}};
  SY_ASSERT_OK_AND_ASSIGN(const DtypeOverride* none,
                          PickOverride(narrow, {"m", LayerId{4}, Phase::kDecode}));
  EXPECT_EQ(none, nullptr);
}

TEST(DtypeOverrideTest, AutoCancelsAWiderOverride) {
  const std::vector<DtypeOverride> wishes{{"", {}, {}, kFp8, "deployment"},
                                          {"", LayerId{3}, {}, std::nullopt, "layer"}};

  SY_ASSERT_OK_AND_ASSIGN(const DtypeOverride* wish,
                          PickOverride(wishes, {"m", LayerId{3}, Phase::kDecode}));

  EXPECT_EQ(wish->dtype, std::nullopt);
}

TEST(DtypeOverrideTest, RefusesTwoEquallySpecificOnesThatDiffer) {
  std::vector<DtypeOverride> wishes{{"", {}, {}, kFp8, "line 3"},
                                    {"", {}, {}, DispatchDtype::kBf16, "line 9"}};
  const OverridePlace place{"m", LayerId{3}, Phase::kDecode};

  const absl::Status refused = PickOverride(wishes, place).status();
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("line 3 asks for fp8 and line 9 for bf16; keep one of them"));

  wishes.push_back({"", LayerId{3}, {}, kFp8, "line 12"});
  SY_EXPECT_OK(PickOverride(wishes, place)) << "a more specific one settles it";
  wishes = {{"", {}, {}, kFp8, "line 3"}, {"", {}, {}, kFp8, "line 9"}};
  SY_EXPECT_OK(PickOverride(wishes, place)) << "said twice, the same";
}

}  // namespace
}  // namespace switchyard
