#include "worker/source/step_request.h"

#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(StepRequestTest, ADenseBatchGivesItsTokensAndStrides) {
  const std::vector<Bf16> x(3 * 8);
  const std::vector<std::int32_t> ids(3 * 2);
  const std::vector<float> weights(3 * 2);
  std::vector<float> y(3 * 8);

  const StepRequest request = RequestOf({.layer = LayerId{5},
                                         .hidden = 8,
                                         .top_k = 2,
                                         .x = x,
                                         .ids = ids,
                                         .weights = weights,
                                         .y = y.data()});

  EXPECT_EQ(request.layer, LayerId{5});
  EXPECT_EQ(request.tokens, 3);
  EXPECT_EQ(request.top_k, 2);
  EXPECT_EQ(request.x, x.data());
  EXPECT_EQ(request.x_stride, 8);
  EXPECT_EQ(request.ids, ids.data());
  EXPECT_EQ(request.ids_stride, 2);
  EXPECT_EQ(request.weights, weights.data());
  EXPECT_EQ(request.weights_stride, 2);
  EXPECT_EQ(request.y, y.data());
  EXPECT_EQ(request.y_stride, 8);
  EXPECT_EQ(request.deadline, Duration::zero());
}

TEST(StepRequestTest, ABatchWithoutTokensIsAStepOfNone) {
  EXPECT_EQ(RequestOf({.layer = LayerId{5}, .hidden = 8, .top_k = 2}).tokens, 0);
}

}  // namespace
}  // namespace switchyard
