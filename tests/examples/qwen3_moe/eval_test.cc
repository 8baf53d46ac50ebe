#include "examples/qwen3_moe/eval.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/rng.h"
#include "examples/qwen3_moe/reference_moe.h"
#include "tests/examples/qwen3_moe/double_model.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;

TEST(EvalTest, ShippedTextHasItsBitsPerByteOnFourWindows) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  const std::string text = testing::ReadBytes(ShippedFile("eval.txt"));
  std::vector<std::size_t> progress;

  SY_ASSERT_OK_AND_ASSIGN(const EvalResult result,
                          Evaluate(*model->decoder, {.run = model->moe, .max_tokens = 300}, text,
                                   {.windows = 4, .progress = [&](std::size_t done, double) {
                                      progress.push_back(done);
                                    }}));

  EXPECT_TRUE(MeetsExpectation(result.bits_per_byte, 1.0901)) << result.bits_per_byte;
  EXPECT_EQ(result.windows, 4U);
  EXPECT_EQ(result.targets, 2048U);
  EXPECT_THAT(progress, ElementsAre(1, 2, 3, 4));
}

// A window is a context of its own and scores the byte behind it: both against double.
TEST(EvalTest, WindowsAreThoseOfTheDefinition) {
  const RandomModel model({.seed = 61,
                           .layers = 1,
                           .hidden = 8,
                           .heads = 1,
                           .kv_heads = 1,
                           .head_dim = 4,
                           .vocab = 256,
                           .moe_intermediate = 4,
                           .max_positions = 512});
  SeededRng rng(62);
  std::string text(2 * 512 + 1, '\0');
  for (char& c : text) c = static_cast<char>(rng.Below(256));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Load(*checkpoint));
  SY_ASSERT_OK_AND_ASSIGN(std::shared_ptr<const ReferenceMoe> moe,
                          ReferenceMoe::Load(*checkpoint, decoder->dims()));

  SY_ASSERT_OK_AND_ASSIGN(
      const EvalResult result,
      Evaluate(*decoder, {.run = MakeReferenceMoe(std::move(moe)), .max_tokens = 512}, text, {}));

  double bits = 0;
  for (std::size_t window = 0; window < 2; ++window) {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < 512; ++i) {
      tokens.push_back(static_cast<unsigned char>(text[window * 512 + i]));
    }
    const auto logits = DoubleModel(model).Logits(tokens);
    for (std::size_t i = 0; i < 512; ++i) {
      double sum = 0;
      for (const double logit : logits[i]) sum += std::exp(logit);
      const auto target = static_cast<unsigned char>(text[window * 512 + i + 1]);
      bits -= std::log2(std::exp(logits[i][target]) / sum);
    }
  }
  EXPECT_EQ(result.windows, 2U);
  EXPECT_NEAR(result.bits_per_byte, bits / 1024, 1e-3);
}

TEST(EvalTest, AWindowNeedsItsBytesAndOneMore) {
  EXPECT_EQ(EvalWindowsIn(0), 0U);
  EXPECT_EQ(EvalWindowsIn(512), 0U);
  EXPECT_EQ(EvalWindowsIn(513), 1U);
  EXPECT_EQ(EvalWindowsIn(1024), 1U);
  EXPECT_EQ(EvalWindowsIn(60000), 117U);
}

TEST(EvalTest, RefusesATextTooShortForTheWindows) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  const MoePath moe{.run = model->moe, .max_tokens = 512};
  const std::string text(1024, 'a');

  for (const auto& [bytes, windows] :
       {std::pair<std::size_t, std::size_t>{1024, 2}, {512, 1}, {512, 0}, {0, 0}}) {
    const auto result = Evaluate(*model->decoder, moe, absl::string_view(text).substr(0, bytes),
                                 {.windows = windows, .progress = nullptr});

    EXPECT_THAT(result, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr(absl::StrCat("the text has ", bytes, " bytes")));
  }
}

TEST(EvalTest, RefusesModelsThatHaveNoBitsPerByte) {
  const RandomModel no_bytes({.seed = 63, .vocab = 257, .max_positions = 512});
  const RandomModel short_context({.seed = 64, .vocab = 256, .max_positions = 511});
  for (const RandomModel* model : {&no_bytes, &short_context}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model->dir()));
    SY_ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Load(*checkpoint));
    const MoePath never{.run = [](const MoeCall&) { return absl::InternalError("called"); },
                        .max_tokens = 1};

    EXPECT_THAT(Evaluate(*decoder, never, std::string(2000, 'a'), {}),
                FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  }
}

TEST(EvalTest, AnExpertThatGivesNanIsNoFigure) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  const MoePath nan{.run =
                        [](const MoeCall& call) {
                          std::fill(call.y.begin(), call.y.end(),
                                    std::numeric_limits<float>::quiet_NaN());
                          return absl::OkStatus();
                        },
                    .max_tokens = 512};

  EXPECT_THAT(Evaluate(*model->decoder, nan, std::string(513, 'a'), {}),
              FailsWith(absl::StatusCode::kInternal, Reason::kInternal));
}

TEST(EvalTest, ExpectationIsMetWithinThreePerMille) {
  EXPECT_TRUE(MeetsExpectation(1.0901 * 1.0029, 1.0901));
  EXPECT_TRUE(MeetsExpectation(1.0901 * 0.9971, 1.0901));
  EXPECT_FALSE(MeetsExpectation(1.0901 * 1.0031, 1.0901));
  EXPECT_FALSE(MeetsExpectation(1.0901 * 0.9969, 1.0901));
  EXPECT_FALSE(MeetsExpectation(std::nan(""), 1.0901));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
