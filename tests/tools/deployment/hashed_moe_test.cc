#include "tools/deployment/hashed_moe.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/deployment/fake_provider.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

// Answers each element with its index in `answers`, from where the call before ended.
MoeFn Counting(const std::vector<float>& answers) {
  return [answers, next = std::size_t{0}](const MoeCall& call) mutable {
    for (float& y : call.y) y = answers[next++];
    return absl::OkStatus();
  };
}

absl::Status Call(const MoePath& path, std::size_t elements) {
  std::vector<float> y(elements, -7.0F);
  const MoeCall call{
      .layer = LayerId{0}, .tokens = 1, .top_k = 1, .x = {}, .ids = {}, .weights = {}, .y = y};
  return path.run(call);
}

TEST(HashedMoeTest, EqualRowsInOtherBatchesGiveTheSameDigest) {
  const std::vector<float> answers{1, 2, 3, 4};
  FakeProvider one(Counting(answers));
  FakeProvider two(Counting(answers));
  HashedMoe whole(one);
  HashedMoe parts(two);

  SY_ASSERT_OK(Call(whole.prefill(), 4));
  SY_ASSERT_OK(Call(parts.prefill(), 1));
  SY_ASSERT_OK(Call(parts.prefill(), 3));

  EXPECT_EQ(whole.Finish(), parts.Finish());
}

TEST(HashedMoeTest, OneBitInAnyPhaseChangesTheDigest) {
  FakeProvider one(Counting({1, 2}));
  FakeProvider two(Counting({1, 2}), Counting({3}));
  FakeProvider three(Counting({1, 2}), Counting({std::nextafter(3.0F, 4.0F)}));
  HashedMoe prefill_alone(one);
  HashedMoe both(two);
  HashedMoe changed(three);

  for (HashedMoe* moe : {&prefill_alone, &both, &changed}) SY_ASSERT_OK(Call(moe->prefill(), 2));
  for (HashedMoe* moe : {&both, &changed}) SY_ASSERT_OK(Call(moe->decode(), 1));

  const Sha256Digest digest = both.Finish();
  EXPECT_NE(digest, prefill_alone.Finish());
  EXPECT_NE(digest, changed.Finish());
}

TEST(HashedMoeTest, PassesErrorsLimitsAndReportsOn) {
  FakeProvider refusing([](const MoeCall&) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadTopK, "top-k");
  });
  HashedMoe moe(refusing);

  EXPECT_THAT(Call(moe.prefill(), 1),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_EQ(moe.prefill().max_tokens, 200U);
  EXPECT_EQ(moe.decode().max_tokens, 1U);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe.Report());
  EXPECT_EQ(report.how, "fake");
}

}  // namespace
}  // namespace switchyard::qwen3_moe
