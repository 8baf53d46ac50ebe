#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "tests/examples/qwen3_moe/double_model.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

constexpr std::size_t kRows = 6;
constexpr LayerId kLayer{1};

// Three experts, one of which is chosen; experts 0 and 1 have the same router row, so that each of
// them is as good a choice as the other. Expert 2 is never near.
class CheckBlockTest : public ::testing::Test {
 protected:
  CheckBlockTest() : model_({.seed = 50, .experts = 3, .top_k = 1}) {
    const std::size_t hidden = model_.options().hidden;
    SeededRng rng(51);
    std::vector<float> gate = testing::GaussianFloats(hidden, 1.0, rng);
    std::vector<float> away = gate;
    for (float& value : away) value = -value;
    gate.insert(gate.end(), gate.begin(), gate.begin() + static_cast<std::ptrdiff_t>(hidden));
    gate.insert(gate.end(), away.begin(), away.end());
    router_ = Router(PackedMatrix::Pack(gate, 3, hidden), {.top_k = 1, .normalize = true});
    block_ = {.name = "tie", .layer = kLayer, .rows = kRows};
    // Rows on the side of experts 0 and 1.
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t i = 0; i < hidden; ++i) {
        data_.in.push_back(gate[i] + 0.3F * static_cast<float>(testing::NextGaussian(rng)));
      }
    }
  }

  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model_.dir()));
    SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));
    SY_ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ReferenceMoe> moe,
                            ReferenceMoe::Load(*checkpoint, dims));
    moe_ = {.run = MakeReferenceMoe(std::move(moe)), .max_tokens = 4};
  }

  // The golden output: each row through `expert`, in double, times `scale`.
  void WantExpert(std::size_t expert, double scale = 1) {
    const std::size_t hidden = model_.options().hidden;
    data_.out.clear();
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::vector<double> row(
          data_.in.begin() + static_cast<std::ptrdiff_t>(r * hidden),
          data_.in.begin() + static_cast<std::ptrdiff_t>((r + 1) * hidden));
      for (const double value : DoubleModel(model_).Expert(1, expert, row)) {
        data_.out.push_back(static_cast<float>(scale * value));
      }
    }
  }

  absl::StatusOr<BlockResult> Check() {
    return CheckBlock(
        {.router = router_, .block = block_, .data = data_, .moe = moe_, .bounds = bounds_});
  }

  RandomModel model_;
  Router router_;
  GoldenBlock block_;
  GoldenBlockData data_;
  MoePath moe_;
  VerifyBounds bounds_;
};

TEST_F(CheckBlockTest, ATieMatchesWithOurChoice) {
  WantExpert(0);

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_TRUE(block.passed);
  EXPECT_EQ(block.near_ties, kRows);
  EXPECT_EQ(block.other_choice, 0U);
  EXPECT_LT(block.pooled_diff, 1e-10);
}

TEST_F(CheckBlockTest, ATieMatchesWithTheOtherChoice) {
  WantExpert(1);

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_TRUE(block.passed) << block.pooled_diff << " " << block.worst_row_diff;
  EXPECT_EQ(block.near_ties, kRows);
  EXPECT_EQ(block.other_choice, kRows);
  EXPECT_LT(block.pooled_diff, 1e-10);
}

TEST_F(CheckBlockTest, ATieFailsWhenNeitherChoiceMatches) {
  for (const std::size_t expert : {0U, 1U}) {
    WantExpert(expert, 1.01);

    SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

    EXPECT_FALSE(block.passed);
    EXPECT_EQ(block.near_ties, kRows);
    EXPECT_EQ(block.other_choice, 0U);
    // The closer one of the two choices counts: 1 % off.
    EXPECT_NEAR(block.pooled_diff, 5e-5, 1e-6);
    EXPECT_NEAR(block.worst_row_diff, 5e-5, 1e-6);
  }
}

TEST_F(CheckBlockTest, AChoiceThatIsNotNearIsNoExcuse) {
  WantExpert(2);

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_FALSE(block.passed);
  EXPECT_EQ(block.other_choice, 0U);
}

TEST_F(CheckBlockTest, LogitsFurtherApartThanTheBoundAreNoTie) {
  bounds_.near_tie = 0;
  WantExpert(1);

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_FALSE(block.passed);
  EXPECT_EQ(block.near_ties, 0U);
}

TEST_F(CheckBlockTest, OneBadRowIsFoundAndNamed) {
  WantExpert(0);
  const std::size_t hidden = model_.options().hidden;
  for (std::size_t i = 0; i < hidden; ++i) data_.out[4 * hidden + i] *= 1.01F;
  bounds_.pooled_diff_max = 1;

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_FALSE(block.passed);
  EXPECT_EQ(block.worst_row, 4U);
  EXPECT_NEAR(block.worst_row_diff, 5e-5, 1e-6);
}

TEST_F(CheckBlockTest, RowsOfZerosAgree) {
  WantExpert(0);
  const std::size_t hidden = model_.options().hidden;
  std::fill_n(data_.in.begin(), hidden, 0.0F);
  std::fill_n(data_.out.begin(), hidden, 0.0F);

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_TRUE(block.passed);
}

TEST_F(CheckBlockTest, ARefusalWhileTryingTheOtherChoiceIsARefusal) {
  WantExpert(1);
  const MoeFn reference = moe_.run;
  moe_.run = [reference](const MoeCall& call) {
    if (call.ids[0] == 0) return reference(call);
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal, "expert 1 is broken");
  };

  SY_ASSERT_OK_AND_ASSIGN(const BlockResult block, Check());

  EXPECT_FALSE(block.passed);
  EXPECT_THAT(block.refused, FailsWith(absl::StatusCode::kInternal, Reason::kInternal));
}

TEST(MeansUnreachableTest, TellsAbsenceFromRefusal) {
  EXPECT_TRUE(MeansUnreachable(absl::UnavailableError("")));
  EXPECT_TRUE(MeansUnreachable(absl::DeadlineExceededError("")));
  EXPECT_TRUE(MeansUnreachable(absl::CancelledError("")));
  EXPECT_FALSE(MeansUnreachable(absl::FailedPreconditionError("")));
  EXPECT_FALSE(MeansUnreachable(absl::DataLossError("")));
  EXPECT_FALSE(MeansUnreachable(absl::OkStatus()));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
