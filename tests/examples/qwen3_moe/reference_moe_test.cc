#include "examples/qwen3_moe/reference_moe.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/rng.h"
#include "tests/examples/qwen3_moe/double_model.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr std::size_t kTokens = 13;
constexpr std::size_t kTopK = 3;

absl::StatusOr<std::shared_ptr<const ReferenceMoe>> Load(const RandomModel& model) {
  SY_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model.dir()));
  SY_ASSIGN_OR_RETURN(const DecoderDims dims, DimsOf(checkpoint->config()));
  return ReferenceMoe::Load(*checkpoint, dims);
}

// A batch with random ids (some -1) and weights, its output poisoned.
struct Batch {
  Batch(const RandomModelOptions& options, std::uint64_t seed) {
    SeededRng rng(seed);
    x = testing::GaussianBf16(kTokens * options.hidden, 1.0, rng);
    weights = testing::GaussianFloats(kTokens * kTopK, 0.5, rng);
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::uint64_t first = rng.Below(options.experts);
      for (std::size_t k = 0; k < kTopK; ++k) {
        const bool none = rng.Below(5) == 0;
        ids.push_back(none ? -1 : static_cast<std::int32_t>((first + k) % options.experts));
      }
    }
    y.assign(x.size(), std::numeric_limits<float>::quiet_NaN());
  }
  [[nodiscard]] MoeCall call() {
    return {.layer = LayerId{1},
            .tokens = kTokens,
            .top_k = kTopK,
            .x = x,
            .ids = ids,
            .weights = weights,
            .y = y};
  }

  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

void ExpectLikeDouble(const RandomModelOptions& options) {
  SCOPED_TRACE(::testing::Message() << "seed " << options.seed);
  const RandomModel model(options);
  const std::size_t hidden = model.options().hidden;
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Load(model));
  Batch batch(model.options(), options.seed);

  SY_ASSERT_OK(moe->Run(batch.call()));

  const DoubleModel oracle(model);
  for (std::size_t t = 0; t < kTokens; ++t) {
    std::vector<double> x(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      x[i] = static_cast<double>(Bf16ToFloat(batch.x[t * hidden + i]));
    }
    std::vector<double> wanted(hidden);
    for (std::size_t k = 0; k < kTopK; ++k) {
      const std::int32_t id = batch.ids[t * kTopK + k];
      if (id < 0) continue;
      const auto out = oracle.Expert(1, static_cast<std::size_t>(id), x);
      for (std::size_t i = 0; i < hidden; ++i) {
        wanted[i] += static_cast<double>(batch.weights[t * kTopK + k]) * out[i];
      }
    }
    for (std::size_t i = 0; i < hidden; ++i) {
      ASSERT_NEAR(batch.y[t * hidden + i], wanted[i], 1e-4) << "row " << t;
    }
  }
}

TEST(ReferenceMoeTest, MatchesExpertsInDouble) {
  for (std::uint64_t seed = 31; seed < 35; ++seed) ExpectLikeDouble({.seed = seed});
}

TEST(ReferenceMoeTest, AddsTheBiasesOfTheExperts) {
  ExpectLikeDouble({.seed = 40, .expert_biases = true});
}

TEST(ReferenceMoeTest, ARowHasTheSameBitsAloneAndInCompany) {
  const RandomModel model({.seed = 36});
  const std::size_t hidden = model.options().hidden;
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Load(model));
  Batch all(model.options(), 36);
  SY_ASSERT_OK(moe->Run(all.call()));

  for (std::size_t t = 0; t < kTokens; ++t) {
    std::vector<float> y(hidden, std::numeric_limits<float>::quiet_NaN());
    SY_ASSERT_OK(moe->Run({.layer = LayerId{1},
                           .tokens = 1,
                           .top_k = kTopK,
                           .x = std::span(all.x).subspan(t * hidden, hidden),
                           .ids = std::span(all.ids).subspan(t * kTopK, kTopK),
                           .weights = std::span(all.weights).subspan(t * kTopK, kTopK),
                           .y = y}));

    EXPECT_EQ(y, std::vector<float>(all.y.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                                    all.y.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden)));
  }
}

TEST(ReferenceMoeTest, NanInARowStaysInThatRow) {
  const RandomModel model({.seed = 37});
  const std::size_t hidden = model.options().hidden;
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Load(model));
  Batch clean(model.options(), 37);
  Batch dirty(model.options(), 37);
  dirty.ids[4 * kTopK] = 0;  // the row has an expert
  clean.ids[4 * kTopK] = 0;
  dirty.x[4 * hidden + 1] = FloatToBf16(std::numeric_limits<float>::quiet_NaN());

  SY_ASSERT_OK(moe->Run(clean.call()));
  SY_ASSERT_OK(moe->Run(dirty.call()));

  for (std::size_t i = 0; i < clean.y.size(); ++i) {
    if (i / hidden == 4) {
      EXPECT_TRUE(std::isnan(dirty.y[i]));
    } else {
      EXPECT_EQ(dirty.y[i], clean.y[i]);
    }
  }
}

TEST(ReferenceMoeTest, RefusesCallsThatDoNotFitTheModel) {
  const RandomModel model({.seed = 38});
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Load(model));
  Batch batch(model.options(), 38);
  std::vector<std::int32_t> too_high = batch.ids;
  too_high[3 * kTopK] = 5;
  std::vector<std::int32_t> too_low = batch.ids;
  too_low[3 * kTopK] = -2;
  const auto with = [&batch](auto change) {
    MoeCall call = batch.call();
    change(call);
    return call;
  };
  const std::pair<MoeCall, Reason> cases[] = {
      {with([](MoeCall& c) { c.layer = LayerId{2}; }), Reason::kUnknownLayer},
      {with([](MoeCall& c) { c.layer = LayerId{-1}; }), Reason::kUnknownLayer},
      {with([](MoeCall& c) { c.top_k = 0; }), Reason::kBadTopK},
      {with([](MoeCall& c) { c.top_k = 6; }), Reason::kBadTopK},
      {with([](MoeCall& c) { c.tokens = 12; }), Reason::kBadShape},
      {with([](MoeCall& c) { c.x = c.x.first(c.x.size() - 1); }), Reason::kBadShape},
      {with([](MoeCall& c) { c.y = c.y.first(c.y.size() - 1); }), Reason::kBadShape},
      {with([](MoeCall& c) { c.ids = c.ids.first(1); }), Reason::kBadShape},
      {with([](MoeCall& c) { c.weights = c.weights.first(1); }), Reason::kBadShape},
      {with([&](MoeCall& c) { c.ids = too_high; }), Reason::kExpertOutOfRange},
      {with([&](MoeCall& c) { c.ids = too_low; }), Reason::kExpertOutOfRange}};

  for (const auto& [call, reason] : cases) {
    EXPECT_THAT(moe->Run(call), FailsWith(absl::StatusCode::kInvalidArgument, reason));
  }
}

TEST(ReferenceMoeTest, NamesAnExpertThatTheCheckpointLacks) {
  const RandomModel model({.seed = 39, .with_experts = false});

  const auto moe = Load(model);

  EXPECT_THAT(moe, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(std::string(moe.status().message()), HasSubstr("model.layers.0.mlp.experts.0"));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
