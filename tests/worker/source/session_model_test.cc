#include "worker/source/session_model.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(SessionModelTest, OtherWeightsOrAnotherShapeIsAnotherModel) {
  Plan opened;
  opened.deployment = "d";
  opened.model = "m";
  opened.shape = {.hidden = 8, .intermediate = 4, .experts = 2, .top_k = 1};
  Plan now = opened;
  now.epoch = Epoch{7};
  now.workers.resize(3);
  SY_EXPECT_OK(CheckSameModel(opened, now));

  now.manifest.bytes[5] = 1;
  const absl::Status weights = CheckSameModel(opened, now);
  EXPECT_THAT(weights, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
  EXPECT_NE(weights.message().find("other weights or another shape of m since epoch 7"),
            std::string::npos)
      << weights;
  now = opened;
  now.shape.hidden = 16;
  now.model = "n";
  const absl::Status shape = CheckSameModel(opened, now);
  EXPECT_THAT(shape, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
  EXPECT_NE(shape.message().find("n in place of m"), std::string::npos) << shape;
}

}  // namespace
}  // namespace switchyard
