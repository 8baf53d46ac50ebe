#include "tools/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/format/bf16.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/deployment/fake_provider.h"
#include "tests/tools/golden/golden_builder.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerifyShippedTest : public ::testing::Test {
 protected:
  void SetUp() override { SY_ASSERT_OK_AND_ASSIGN(model_, ShippedModel::Load()); }

  absl::StatusOr<VerifyReport> VerifyWith(MoeProvider& provider) {
    return Verify({.decoder = *model_->decoder, .golden = *model_->golden, .moe = provider},
                  VerifyBounds{});
  }
  absl::StatusOr<VerifyReport> VerifyWith(const MoeFn& moe) {
    FakeProvider provider(moe);
    return VerifyWith(provider);
  }

  std::unique_ptr<ShippedModel> model_;
};

TEST_F(VerifyShippedTest, TheReferencePassesTheGoldens) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith(model_->moe));

  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_TRUE(report.passed());
  ASSERT_EQ(report.blocks.size(), 10U);
  for (const BlockResult& block : report.blocks) {
    EXPECT_TRUE(block.passed) << block.name << " layer " << block.layer.value;
    // Rounding x to BF16 must show, and nothing more than that.
    EXPECT_GT(block.pooled_diff, 1e-8);
    EXPECT_LT(block.pooled_diff, 3e-6);
    EXPECT_LT(block.worst_row_diff, 1e-5);
  }
  EXPECT_THAT(report.blocks, Contains(AllOf(Field(&BlockResult::name, "val"),
                                            Field(&BlockResult::layer, LayerId{2}),
                                            Field(&BlockResult::rows, 512U))));
  EXPECT_EQ(report.positions, 37U);
  EXPECT_GE(report.agreed, 37U * 98 / 100);
  ASSERT_EQ(report.texts.size(), 2U);
  for (const TextResult& text : report.texts) {
    ASSERT_TRUE(text.greedy.has_value());
    EXPECT_EQ(text.greedy->ours.size(), 160U);
    // Greedy text may part from the golden one, but only where two logits are nearly equal.
    if (text.greedy->difference.has_value()) {
      EXPECT_LT(text.greedy->difference->logit_gap, 0.05);
    }
  }
}

TEST_F(VerifyShippedTest, AnExpertScaledByOnePerCentFailsItsLayerAlone) {
  // The expert of layer 2 that gets the largest weight in `val`: where its weight is near 1, the
  // whole row is off by 1 %, a calc_diff of 5e-5.
  const GoldenBlock block = model_->golden->blocks().back();
  ASSERT_EQ(block.layer, LayerId{2});
  SY_ASSERT_OK_AND_ASSIGN(const GoldenBlockData data, model_->golden->ReadBlock(block));
  const Routing routing = model_->decoder->router(block.layer).Route(data.in);
  const auto heaviest = std::max_element(routing.weights.begin(), routing.weights.end());
  const std::int32_t expert =
      routing.ids[static_cast<std::size_t>(heaviest - routing.weights.begin())];
  const TensorInfo* down = model_->checkpoint->Find(
      absl::StrCat("model.layers.2.mlp.experts.", expert, ".down_proj.weight"));
  ASSERT_NE(down, nullptr);
  std::string bytes = testing::ReadBytes(ShippedFile("model.safetensors"));
  for (std::size_t i = 0; i < down->bytes; i += sizeof(Bf16)) {
    char* at = bytes.data() + down->file_offset + i;
    Bf16 value = 0;
    std::memcpy(&value, at, sizeof(value));
    value = FloatToBf16(Bf16ToFloat(value) * 1.01F);
    std::memcpy(at, &value, sizeof(value));
  }
  const testing::TempDir dir;
  dir.Write("model.safetensors", bytes);
  dir.Write("config.json", testing::ReadBytes(ShippedFile("config.json")));
  SY_ASSERT_OK_AND_ASSIGN(const auto scaled, ShippedModel::Load(dir.path()));

  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith(scaled->moe));

  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.failures, Contains(HasSubstr("block val layer 2: ")));
  for (const BlockResult& result : report.blocks) {
    if (result.layer != LayerId{2}) {
      EXPECT_TRUE(result.passed) << result.name;
    }
  }
}

TEST_F(VerifyShippedTest, WeightsAppliedTwiceFailEveryBlock) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith([this](const MoeCall& call) {
                            std::vector<float> squared(call.weights.begin(), call.weights.end());
                            for (float& weight : squared) weight *= weight;
                            MoeCall changed = call;
                            changed.weights = squared;
                            return model_->moe(changed);
                          }));

  for (const BlockResult& block : report.blocks) EXPECT_FALSE(block.passed) << block.name;
  EXPECT_FALSE(report.passed());
}

TEST_F(VerifyShippedTest, ARowThatIsNeverWrittenFails) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith([this](const MoeCall& call) {
                            std::vector<float> y(call.y.size());
                            MoeCall elsewhere = call;
                            elsewhere.y = y;
                            const absl::Status status = model_->moe(elsewhere);
                            // All rows but the last; row 199 is the last of the first call for
                            // `val`.
                            std::copy(y.begin(), y.end() - 256, call.y.begin());
                            return status;
                          }));

  EXPECT_FALSE(report.passed());
  for (const BlockResult& block : report.blocks) {
    EXPECT_FALSE(block.passed);
    EXPECT_TRUE(std::isnan(block.pooled_diff));
    EXPECT_TRUE(std::isnan(block.worst_row_diff));
    EXPECT_EQ(block.worst_row, block.name == "val" ? 199U : block.rows - 1);
  }
}

TEST_F(VerifyShippedTest, ARefusedRowFailsItsBlockAndTheOthersAreChecked) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith([this](const MoeCall& call) {
                            if (call.layer != LayerId{1}) return model_->moe(call);
                            return MakeError(absl::StatusCode::kFailedPrecondition,
                                             Reason::kStaleEpoch, "worker w2, layer 1: epoch 4");
                          }));

  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.failures, Contains(AllOf(HasSubstr("block p0 layer 1: refused"),
                                              HasSubstr("worker w2"), HasSubstr("STALE_EPOCH"))));
  EXPECT_THAT(report.failures, Contains(HasSubstr("text p1: refused")));
  for (const BlockResult& block : report.blocks) {
    EXPECT_EQ(block.passed, block.layer != LayerId{1});
    EXPECT_EQ(block.refused.ok(), block.layer != LayerId{1});
  }
}

TEST_F(VerifyShippedTest, ExpertsThatAreNotThereAreNoVerdict) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded,
        absl::StatusCode::kCancelled}) {
    const auto report = VerifyWith([code](const MoeCall&) {
      return MakeError(code, Reason::kWorkerLost, "worker w1 is gone");
    });

    EXPECT_THAT(report, FailsWith(code, Reason::kWorkerLost));
  }
}

TEST_F(VerifyShippedTest, CountsThatDifferFromThePredictionFail) {
  FakeProvider provider(model_->moe);
  provider.report->workers.push_back({.worker = "w1",
                                      .path = "mapped",
                                      .predicted = {.rows = 5},
                                      .counted = {.rows = 4},
                                      .differences = {"4 rows where routing and placement say 5"}});

  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith(provider));

  EXPECT_THAT(report.failures, ElementsAre("worker w1: 4 rows where routing and placement say 5"));
  for (const BlockResult& block : report.blocks) EXPECT_TRUE(block.passed);
}

TEST_F(VerifyShippedTest, CountsThatCannotBeHadAreNoVerdict) {
  FakeProvider provider(model_->moe);
  provider.report = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");

  EXPECT_THAT(VerifyWith(provider), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(VerifyShippedTest, PromptsGoThroughPrefillAndSingleTokensThroughDecode) {
  std::size_t prefill_tokens = 0;
  std::set<std::size_t> decode_batches;
  FakeProvider provider(
      [&](const MoeCall& call) {
        EXPECT_LE(call.tokens, 200U);
        prefill_tokens += call.tokens;
        return model_->moe(call);
      },
      [&](const MoeCall& call) {
        decode_batches.insert(call.tokens);
        return model_->moe(call);
      });

  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyWith(provider));

  // Ten blocks, then each prompt for its logits and again for its greedy text, in four layers.
  std::size_t expected = 4U * (10 + 27) + 2 * 512 + 2 * 4 * (10 + 27);
  for (const BlockResult& block : report.blocks) expected += block.other_choice;
  EXPECT_EQ(prefill_tokens, expected);
  EXPECT_THAT(decode_batches, ElementsAre(1U));
}

TEST_F(VerifyShippedTest, WrongLogitsFailTopOneAgreementAndWrongTextDoesNot) {
  const testing::TempDir dir;
  GoldenBuilder builder;
  const GoldenText& text = model_->golden->texts()[1];
  std::vector<float> logits = text.logits;
  logits[3 * 256 + 7] = 1e6F;  // one position of 27 is more than 2 %
  std::vector<std::int32_t> greedy = text.greedy;
  greedy[40] = 1;
  const auto verify = [&](const std::vector<float>& golden_logits) -> absl::StatusOr<VerifyReport> {
    GoldenBuilder golden;
    golden.Ids("t.ids", text.ids).Floats("t.logits", 27, golden_logits).Ids("t.greedy", greedy);
    golden.Ids("lonely.greedy", {1, 2});
    SY_ASSIGN_OR_RETURN(const auto file, GoldenFile::Open(golden.Write(dir),
                                                          GoldenShapeOf(model_->decoder->dims())));
    FakeProvider provider(model_->moe);
    return Verify({.decoder = *model_->decoder, .golden = *file, .moe = provider}, VerifyBounds{});
  };

  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport wrong, verify(logits));
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport right, verify(text.logits));

  EXPECT_THAT(wrong.failures, ElementsAre(HasSubstr("top-1 agreement: 26 of 27")));
  EXPECT_TRUE(right.passed());
  ASSERT_EQ(right.texts.size(), 1U);
  EXPECT_EQ(right.texts[0].greedy->difference->position, 40U);
  EXPECT_GT(right.texts[0].greedy->difference->logit_gap, 0.0);
  EXPECT_THAT(right.notes, ElementsAre(HasSubstr("lonely is not checked")));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
