#include "tools/deployment/moe_provider.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

TEST(MoeProviderTest, TheReferenceServesBothPhasesWithoutWorkers) {
  const RandomModel model({.seed = 81});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));
  SY_ASSERT_OK_AND_ASSIGN(const auto provider, OpenMoe(*checkpoint, dims, {.moe = "reference"}));
  SeededRng rng(82);
  const std::vector<Bf16> x = testing::GaussianBf16(dims.hidden, 1.0, rng);
  const std::vector<std::int32_t> ids = {3, 1};
  const std::vector<float> weights = {0.75F, 0.25F};
  std::vector<float> prefill(dims.hidden, -7.0F);
  std::vector<float> decode(dims.hidden, -8.0F);
  MoeCall call{.layer = LayerId{1},
               .tokens = 1,
               .top_k = 2,
               .x = x,
               .ids = ids,
               .weights = weights,
               .y = prefill};

  SY_ASSERT_OK(provider->prefill().run(call));
  call.y = decode;
  SY_ASSERT_OK(provider->decode().run(call));

  EXPECT_EQ(prefill, decode);
  EXPECT_GE(provider->prefill().max_tokens, 512U);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, provider->Report());
  EXPECT_THAT(report.how, HasSubstr("reference"));
  EXPECT_TRUE(report.workers.empty());
}

TEST(MoeProviderTest, RefusesAKindThatThereIsNot) {
  const RandomModel model({.seed = 83});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));

  EXPECT_THAT(OpenMoe(*checkpoint, dims, {.moe = "magic"}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST(MoeProviderTest, SaysWhenTheCheckpointLacksItsExperts) {
  const RandomModel model({.seed = 84, .with_experts = false});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));

  EXPECT_THAT(OpenMoe(*checkpoint, dims, {.moe = "reference"}),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
