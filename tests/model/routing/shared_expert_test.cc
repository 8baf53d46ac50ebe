#include "model/routing/shared_expert.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::GaussianFloats;

constexpr std::int32_t kHidden = 24;
constexpr std::size_t kTokens = 7;
constexpr std::size_t kValues = kTokens * kHidden;

class SharedExpertTest : public ::testing::Test {
 protected:
  SharedExpertTest() {
    SeededRng rng(4);
    routed_ = GaussianFloats(kValues, 1.0, rng);
    shared_ = GaussianFloats(kValues, 1.0, rng);
    gate_ = GaussianFloats(kTokens, 2.0, rng);
  }
  [[nodiscard]] SharedExpertInputs Inputs() const {
    return {.hidden = kHidden,
            .routed = routed_,
            .routed_scaling = 2.5F,
            .shared = shared_,
            .gate = gate_};
  }

  std::vector<float> routed_;
  std::vector<float> shared_;
  std::vector<float> gate_;
  std::vector<float> y_ = std::vector<float>(kValues, -77.0F);
};

// R111: once, with Qwen's gate and without one; a step that is done again gives the same.
TEST_F(SharedExpertTest, IsAddedOnceHoweverOftenItIsDone) {
  for (const bool gated : {true, false}) {
    SharedExpertInputs inputs = Inputs();
    if (!gated) inputs.gate = {};
    for (int again = 0; again < 2; ++again) {
      SY_ASSERT_OK(AddSharedExpert(inputs, y_));

      for (std::size_t i = 0; i < kValues; ++i) {
        const double logit = static_cast<double>(gate_[i / kHidden]);
        const double gate = gated ? 1 / (1 + std::exp(-logit)) : 1;
        const double want =
            2.5 * static_cast<double>(routed_[i]) + gate * static_cast<double>(shared_[i]);
        EXPECT_NEAR(y_[i], want, 2e-6) << i;
      }
    }
  }
}

// A row whose experts are all absent still has its shared expert.
TEST_F(SharedExpertTest, RowsWithoutRoutedExpertsKeepTheShared) {
  const std::vector<float> nothing(kValues, 0.0F);
  SharedExpertInputs inputs = Inputs();
  inputs.routed = nothing;
  inputs.gate = {};

  SY_ASSERT_OK(AddSharedExpert(inputs, y_));

  EXPECT_EQ(y_, shared_);
}

TEST_F(SharedExpertTest, NoTokensAreNoError) {
  SY_EXPECT_OK(AddSharedExpert({.hidden = kHidden, .routed = {}, .shared = {}, .gate = {}}, {}));
}

TEST_F(SharedExpertTest, RefusesSizesThatDoNotFitAndOverlap) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape);
  const std::vector<float> untouched = y_;
  SharedExpertInputs inputs = Inputs();
  inputs.hidden = 0;
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad);
  inputs.hidden = kHidden + 1;
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad);
  inputs = Inputs();
  inputs.shared = inputs.shared.first(kValues - kHidden);
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad);
  inputs = Inputs();
  inputs.routed = inputs.routed.first(kHidden);
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad);
  inputs = Inputs();
  inputs.gate = inputs.gate.first(kTokens - 1);
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad);
  inputs = Inputs();
  inputs.routed = y_;
  EXPECT_THAT(AddSharedExpert(inputs, y_), bad) << "in place it would add twice when done again";
  EXPECT_EQ(y_, untouched);
}

}  // namespace
}  // namespace switchyard
