// Batches past what one grid dimension holds, through a whole deployment in one process.
#include <cstring>
#include <limits>
#include <set>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "harness/in_process_deployment.h"
#include "model/expert_weights.h"
#include "model/synthetic_model.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

constexpr char kModel[] = "synthetic:seed=61,hidden=256,intermediate=32,experts=16,top_k=4";
constexpr std::size_t kHidden = 256;
constexpr std::size_t kTopK = 4;
constexpr std::uint64_t kExperts = 16;
constexpr std::size_t kDistinct = 4096;
constexpr std::size_t kTokensMax = 131072;

// Every token is one of kDistinct random rows, dealt at random. Its tag says which, so that all
// rows of y are checked although the reference is computed for the distinct ones alone.
struct TaggedBatch {
  explicit TaggedBatch(std::uint64_t seed) {
    SeededRng rng(seed);
    for (std::size_t i = 0; i < kDistinct * kHidden; ++i) {
      rows.push_back(FloatToBf16(static_cast<float>(rng.Uniform() * 4 - 2)));
    }
    for (std::size_t r = 0; r < kDistinct; ++r) {
      std::set<std::int32_t> used;
      while (used.size() < kTopK) {
        const auto id = static_cast<std::int32_t>(rng.Below(kExperts));
        if (!used.insert(id).second) continue;
        row_ids.push_back(id);
        row_weights.push_back(static_cast<float>(rng.Uniform()) / 2);
      }
    }
    for (std::size_t t = 0; t < kTokensMax; ++t) {
      const auto tag = t < kDistinct ? t : static_cast<std::size_t>(rng.Below(kDistinct));
      tags.push_back(tag);
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(tag * kHidden);
      x.insert(x.end(), row, row + kHidden);
      for (std::size_t k = 0; k < kTopK; ++k) {
        ids.push_back(row_ids[tag * kTopK + k]);
        weights.push_back(row_weights[tag * kTopK + k]);
      }
    }
  }
  StepRequest Request(std::size_t tokens) {
    y.assign(tokens * kHidden, std::numeric_limits<float>::quiet_NaN());
    return RequestOf({.layer = LayerId{0},
                      .hidden = kHidden,
                      .top_k = kTopK,
                      .x = x,
                      .ids = std::span(ids).first(tokens * kTopK),
                      .weights = weights,
                      .y = y.data()});
  }
  // How many rows of y differ in any bit from the y of the first token with the same tag.
  [[nodiscard]] std::size_t RowsUnlikeTheirTag(std::size_t tokens) const {
    std::size_t unlike = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* row = &y[t * kHidden];
      const float* first = &y[tags[t] * kHidden];
      if (std::memcmp(row, first, kHidden * sizeof(float)) != 0) ++unlike;
    }
    return unlike;
  }

  std::vector<Bf16> rows;
  std::vector<std::int32_t> row_ids;
  std::vector<float> row_weights;
  std::vector<std::size_t> tags;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

std::vector<double> ReferenceOf(const TaggedBatch& batch) {
  const SyntheticModel model = *ParseSyntheticModel(kModel);
  std::vector<ExpertWeights> experts;
  for (std::uint64_t e = 0; e < kExperts; ++e) {
    experts.push_back(*GenerateExpert(model, LayerId{0}, ExpertId{static_cast<std::int32_t>(e)}));
  }
  std::vector<ExpertWeightsView> views;
  for (const ExpertWeights& expert : experts) {
    views.push_back({expert.gate, expert.up, expert.down});
  }
  return testing::ReferenceMoeLayer(model.shape, views,
                                    {batch.rows, batch.row_ids, batch.row_weights});
}

// R61
TEST(LargeBatchTest, NormalModeTakes131072TokensAndEveryRowIsItsOwn) {
  Logger logger("test", LogLevel::kWarn);
  InProcessOptions options;
  options.checkpoint = kModel;
  options.workers = 3;
  options.logger = &logger;
  SY_ASSERT_OK_AND_ASSIGN(const auto deployment, InProcessDeployment::Start(options));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, deployment->MakeClient());
  OpenSessionRequest order;
  order.phase = Phase::kPrefill;
  order.mode = DispatchMode::kNormal;
  SY_ASSERT_OK_AND_ASSIGN(const auto session,
                          client->OpenWhenReady(order, std::chrono::seconds(60)));
  TaggedBatch batch(61);
  const std::vector<double> expected = ReferenceOf(batch);

  for (const std::size_t tokens :
       {std::size_t{65535}, std::size_t{65536}, std::size_t{65537}, kTokensMax}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(batch.Request(tokens)));
    SY_ASSERT_OK(session->Wait(ticket));

    const std::vector<float> distinct(batch.y.begin(), batch.y.begin() + kDistinct * kHidden);
    EXPECT_LE(testing::CalcDiff(distinct, expected), 1.5e-5) << tokens;
    EXPECT_LE(testing::CalcDiffWorstRow(distinct, expected, kHidden), 2.5e-5) << tokens;
    EXPECT_EQ(batch.RowsUnlikeTheirTag(tokens), 0U) << tokens;
  }
}

}  // namespace
}  // namespace switchyard
