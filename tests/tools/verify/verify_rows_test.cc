#include "tools/verify/verify_rows.h"

#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/deployment/fake_provider.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As in the shipped model: 4 rows of top-4 name each of 16 experts once.
constexpr std::size_t kAllExperts = 4;
constexpr std::uint64_t kSeed = 11;

class VerifyRowsTest : public ::testing::Test {
 protected:
  void SetUp() override { SY_ASSERT_OK_AND_ASSIGN(model_, ShippedModel::Load()); }

  absl::StatusOr<VerifyReport> Check(const MoeFn& moe, std::optional<LayerId> layer = LayerId{2},
                                     std::size_t rows = kAllExperts, std::uint64_t seed = kSeed) {
    FakeProvider provider(moe);
    return VerifyRows({.checkpoint = *model_->checkpoint,
                       .moe = provider,
                       .rows = rows,
                       .layer = layer,
                       .seed = seed});
  }

  std::unique_ptr<ShippedModel> model_;
};

TEST_F(VerifyRowsTest, ALayerThatIsTheModelsPassesWithEveryExpert) {
  std::set<std::int32_t> ids;
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Check([&](const MoeCall& call) {
                            ids.insert(call.ids.begin(), call.ids.end());
                            return model_->moe(call);
                          }));

  EXPECT_THAT(report.failures, IsEmpty());
  ASSERT_EQ(report.blocks.size(), 1U);
  EXPECT_TRUE(report.blocks[0].passed);
  EXPECT_EQ(report.blocks[0].layer, LayerId{2});
  EXPECT_EQ(report.blocks[0].rows, kAllExperts);
  EXPECT_LT(report.blocks[0].worst_row_diff, 1e-9);  // both round nothing
  EXPECT_EQ(ids.size(), 16U);
  EXPECT_THAT(report.notes,
              ElementsAre("the rows name 16 of 16 experts of one layer; again with --layer 2 "
                          "--seed 11"));
}

TEST_F(VerifyRowsTest, AnotherExpertsWeightsFail) {
  for (std::int32_t wrong = 0; wrong < 16; ++wrong) {
    SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Check([&](const MoeCall& call) {
                              std::vector<std::int32_t> ids(call.ids.begin(), call.ids.end());
                              for (std::int32_t& id : ids) {
                                if (id == wrong) id = (wrong + 1) % 16;
                              }
                              MoeCall changed = call;
                              changed.ids = ids;
                              return model_->moe(changed);
                            }));

    EXPECT_FALSE(report.passed());
    EXPECT_FALSE(report.blocks[0].passed);
    // Far outside of what any format's rounding may cost, too.
    EXPECT_GT(report.blocks[0].worst_row_diff, 4e-2) << wrong;
  }
}

TEST_F(VerifyRowsTest, ARowThatIsNeverWrittenFails) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                          Check([](const MoeCall& /*call*/) { return absl::OkStatus(); }));

  EXPECT_FALSE(report.passed());
}

TEST_F(VerifyRowsTest, ARefusalIsAFailureAndMissingExpertsAreNoVerdict) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport refused, Check([](const MoeCall& /*call*/) {
                            return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                                             "rows of 7");
                          }));
  EXPECT_THAT(refused.failures, ElementsAre(HasSubstr("refused: ")));

  EXPECT_THAT(Check([](const MoeCall& /*call*/) {
                return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "w0 is lost");
              }),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(VerifyRowsTest, ASeedGivesTheSameLayerAndRows) {
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport one, Check(model_->moe, std::nullopt, 2, 5));
  SY_ASSERT_OK_AND_ASSIGN(const VerifyReport again, Check(model_->moe, std::nullopt, 2, 5));
  EXPECT_EQ(one.digest, again.digest);
  EXPECT_EQ(one.blocks[0].layer, again.blocks[0].layer);

  std::set<std::int32_t> layers;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SY_ASSERT_OK_AND_ASSIGN(const VerifyReport other, Check(model_->moe, std::nullopt, 1, seed));
    layers.insert(other.blocks[0].layer.value);
  }
  EXPECT_EQ(layers.size(), 4U);
}

TEST_F(VerifyRowsTest, ALayerWithoutExpertsIsRefused) {
  EXPECT_THAT(Check(model_->moe, LayerId{9}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
