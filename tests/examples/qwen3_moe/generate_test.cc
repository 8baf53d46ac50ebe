#include "examples/qwen3_moe/generate.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::Each;
using testing::FailsWith;

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(model_, ShippedModel::Load());
    text_ = model_->golden->texts()[0];
    prefill_ = {.run =
                    [this](const MoeCall& call) {
                      prefill_batches_.push_back(call.tokens);
                      clock_.Advance(std::chrono::milliseconds(5));
                      return model_->moe(call);
                    },
                .max_tokens = 4};
    decode_ = {.run =
                   [this](const MoeCall& call) {
                     decode_batches_.push_back(call.tokens);
                     clock_.Advance(std::chrono::milliseconds(1));
                     return model_->moe(call);
                   },
               .max_tokens = 1};
  }

  absl::StatusOr<GenerateReport> GenerateWith(const GenerateOptions& options) {
    return Generate(
        {.decoder = *model_->decoder, .prefill = prefill_, .decode = decode_, .clock = clock_},
        options);
  }
  [[nodiscard]] GenerateOptions Options(std::size_t tokens) const {
    return {.prompt = text_.ids, .tokens = tokens, .sampling = {}, .stop = {}, .on_token = {}};
  }

  std::unique_ptr<ShippedModel> model_;
  GoldenText text_;
  ManualClock clock_;
  MoePath prefill_;
  MoePath decode_;
  std::vector<std::size_t> prefill_batches_;
  std::vector<std::size_t> decode_batches_;
};

TEST_F(GenerateTest, GreedyTextIsTheGoldenOneAsFarAsThatGoes) {
  std::vector<std::int32_t> streamed;
  GenerateOptions options = Options(40);
  options.on_token = [&](std::int32_t token) { streamed.push_back(token); };

  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport report, GenerateWith(options));

  EXPECT_EQ(report.tokens,
            std::vector<std::int32_t>(text_.greedy.begin() + 10, text_.greedy.begin() + 50));
  EXPECT_EQ(streamed, report.tokens);
}

TEST_F(GenerateTest, PromptGoesThroughPrefillAndEachTokenThroughDecode) {
  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport report, GenerateWith(Options(6)));

  // Ten tokens in batches of at most four, in four layers; five tokens are fed back.
  EXPECT_EQ(prefill_batches_.size(), 12U);
  EXPECT_EQ(decode_batches_.size(), 20U);
  EXPECT_THAT(decode_batches_, Each(1U));
  EXPECT_EQ(report.prompt_tokens, 10U);
  EXPECT_EQ(report.decode_steps, 5U);
  EXPECT_EQ(report.prefill, std::chrono::milliseconds(60));
  EXPECT_EQ(report.decode, std::chrono::milliseconds(20));
  EXPECT_NEAR(report.PrefillTokensPerSecond(), 10 / 0.060, 1e-6);
  EXPECT_NEAR(report.DecodeTokensPerSecond(), 5 / 0.020, 1e-6);
}

TEST_F(GenerateTest, EndsBeforeAStopToken) {
  GenerateOptions options = Options(40);
  const std::vector<std::int32_t> stop = {text_.greedy[17]};
  options.stop = stop;

  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport report, GenerateWith(options));

  EXPECT_LE(report.tokens.size(), 7U);
  EXPECT_THAT(report.tokens, Each(::testing::Ne(stop[0])));
}

TEST_F(GenerateTest, SamplingIsTheSameForTheSameSeed) {
  GenerateOptions options = Options(30);
  options.sampling = {.temperature = 1.0, .top_p = 0.95, .seed = 5};

  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport first, GenerateWith(options));
  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport again, GenerateWith(options));
  options.sampling.seed = 6;
  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport other, GenerateWith(options));

  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_NE(first.tokens, other.tokens);
}

TEST_F(GenerateTest, NoTokensAskedForIsThePromptAlone) {
  SY_ASSERT_OK_AND_ASSIGN(const GenerateReport report, GenerateWith(Options(0)));

  EXPECT_TRUE(report.tokens.empty());
  EXPECT_EQ(report.DecodeTokensPerSecond(), 0);
}

TEST_F(GenerateTest, RefusesWhatTheModelCannotTake) {
  GenerateOptions no_prompt = Options(5);
  no_prompt.prompt = {};
  GenerateOptions bad_sampling = Options(5);
  bad_sampling.sampling.top_p = 0;
  const std::vector<std::int32_t> long_prompt(2049, 'a');
  GenerateOptions too_long_prompt = Options(0);
  too_long_prompt.prompt = long_prompt;

  for (const GenerateOptions& options :
       {no_prompt, bad_sampling, too_long_prompt, Options(2039), Options(SIZE_MAX)}) {
    EXPECT_THAT(GenerateWith(options),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  }
}

TEST_F(GenerateTest, PassesAFailureOfTheExpertsOn) {
  int calls = 0;
  decode_.run = [&](const MoeCall& call) {
    if (++calls < 6) return model_->moe(call);
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "worker w1 is gone");
  };
  std::vector<std::int32_t> streamed;
  GenerateOptions options = Options(10);
  options.on_token = [&](std::int32_t token) { streamed.push_back(token); };

  EXPECT_THAT(GenerateWith(options),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(streamed,
            std::vector<std::int32_t>(text_.greedy.begin() + 10, text_.greedy.begin() + 12));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
