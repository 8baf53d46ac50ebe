#include "examples/qwen3_moe/experts_call.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;

constexpr std::size_t kHidden = 6;

Routing SomeRouting(std::size_t tokens) {
  Routing routing{.top_k = 2, .ids = {}, .weights = {}, .logits = {}};
  for (std::size_t i = 0; i < tokens * 2; ++i) {
    routing.ids.push_back(static_cast<std::int32_t>(i));
    routing.weights.push_back(static_cast<float>(i) / 8);
  }
  return routing;
}

TEST(ExpertsCallTest, SplitsAtTheLargestBatchAndKeepsRowsTogether) {
  SeededRng rng(5);
  const std::vector<float> x = testing::GaussianFloats(7 * kHidden, 1.0, rng);
  const Routing routing = SomeRouting(7);
  std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<std::size_t> batches;
  // y = weight of the first expert + its id, so that a row out of place shows.
  const MoePath path{.run =
                         [&](const MoeCall& call) {
                           batches.push_back(call.tokens);
                           EXPECT_EQ(call.layer, LayerId{3});
                           EXPECT_EQ(call.x.size(), call.tokens * kHidden);
                           for (std::size_t i = 0; i < call.y.size(); ++i) {
                             const std::size_t pick = i / kHidden * call.top_k;
                             call.y[i] = Bf16ToFloat(call.x[i]) + call.weights[pick] +
                                         static_cast<float>(call.ids[pick]);
                           }
                           return absl::OkStatus();
                         },
                     .max_tokens = 3};

  SY_ASSERT_OK(RunExperts({.layer = LayerId{3}, .x = x, .routing = routing, .y = y}, path));

  EXPECT_THAT(batches, ElementsAre(3, 3, 1));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t pick = i / kHidden * 2;
    EXPECT_EQ(y[i], Bf16ToFloat(FloatToBf16(x[i])) + routing.weights[pick] +
                        static_cast<float>(routing.ids[pick]));
  }
}

TEST(ExpertsCallTest, NamesLayerAndRowsOfACallThatFailed) {
  const std::vector<float> x(5 * kHidden, 1.0F);
  const Routing routing = SomeRouting(5);
  std::vector<float> y(x.size());
  int calls = 0;
  const MoePath path{.run =
                         [&](const MoeCall&) {
                           return ++calls == 2 ? MakeError(absl::StatusCode::kUnavailable,
                                                           Reason::kWorkerLost, "worker w3 is gone")
                                               : absl::OkStatus();
                         },
                     .max_tokens = 2};

  const absl::Status status =
      RunExperts({.layer = LayerId{1}, .x = x, .routing = routing, .y = y}, path);

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(status.message()), HasSubstr("MoE layer 1, rows 2 to 3: worker w3"));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
