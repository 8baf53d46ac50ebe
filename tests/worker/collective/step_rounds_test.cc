#include "worker/collective/source/step_rounds.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr MoeShape kShape{.hidden = 8, .intermediate = 4, .experts = 4, .top_k = 2};

// Knows which steps it was asked about, and finds one of them wrong.
class AskedExchange final : public Exchange {
 public:
  [[nodiscard]] const std::string& key() const override { return key_; }
  absl::Status Join(std::span<const std::string>, Duration) override { return absl::OkStatus(); }
  absl::Status Step(Stream*, const ExchangeStep&) override { return absl::OkStatus(); }
  void Lose(std::int32_t) override {}
  [[nodiscard]] absl::Status Fault() const override { return absl::OkStatus(); }
  [[nodiscard]] absl::Status CheckIds(std::uint64_t step, std::int32_t first_row) const override {
    asked.emplace_back(step, first_row);
    if (step != wrong) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange, "wrong");
  }

  mutable std::vector<std::pair<std::uint64_t, std::int32_t>> asked;
  std::uint64_t wrong = 0;

 private:
  std::string key_;
};

TEST(StepRoundsTest, ARoundHasItsRowsOfAllTensors) {
  std::vector<Bf16> x(7 * 8);
  std::vector<std::int32_t> ids(7 * 2);
  std::vector<float> weights(7 * 2);
  std::vector<float> y(7 * 8);
  StepRequest step;
  step.tokens = 7;
  step.x = x.data();
  step.ids = ids.data();
  step.weights = weights.data();
  step.y = y.data();

  const StepRequest first = RoundOf(step, kShape, OutputDtype::kF32, 0, 3);
  const StepRequest last = RoundOf(step, kShape, OutputDtype::kF32, 6, 3);

  EXPECT_EQ(first.tokens, 3);
  EXPECT_EQ(first.y, y.data());
  EXPECT_EQ(last.tokens, 1);
  EXPECT_EQ(last.x, x.data() + 48);
  EXPECT_EQ(last.ids, ids.data() + 12);
  EXPECT_EQ(last.weights, weights.data() + 12);
  EXPECT_EQ(last.y, y.data() + 48);
  EXPECT_EQ(RoundOf(step, kShape, OutputDtype::kBf16, 6, 3).y, y.data() + 24);
}

TEST(StepRoundsTest, IdsAreAskedForByRoundAndRow) {
  StepRounds rounds;
  rounds.Begin(100);
  rounds.numbers = {7, 9, 10};
  AskedExchange exchange;
  exchange.wrong = 11;
  SY_EXPECT_OK(CheckRoundIds(rounds, 1031, exchange));
  EXPECT_EQ(exchange.asked,
            (std::vector<std::pair<std::uint64_t, std::int32_t>>{{7, 0}, {9, 100}, {10, 200}}));
  exchange.wrong = 9;
  EXPECT_THAT(CheckRoundIds(rounds, 12, exchange),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
}

// Goal: never "right" where the device may have forgotten that they were wrong.
TEST(StepRoundsTest, IdsThatTheDeviceHasForgottenAreAnError) {
  StepRounds rounds;
  rounds.Begin(100);
  rounds.numbers = {7};
  EXPECT_THAT(CheckRoundIds(rounds, 1032, AskedExchange()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
}

}  // namespace
}  // namespace switchyard
