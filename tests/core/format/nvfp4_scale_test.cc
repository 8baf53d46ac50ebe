#include "core/format/nvfp4_scale.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

// R89
TEST(Nvfp4ScaleTest, ModelOptAndCompressedTensorsAreReciprocal) {
  SeededRng rng(89);
  for (int i = 0; i < 100; ++i) {
    const auto amax = static_cast<float>(0.01 + 100.0 * rng.Uniform());
    const float modelopt = amax / (448.0F * 6.0F);  // what its exporter stores
    const float compressed_tensors = 448.0F * 6.0F / amax;

    SY_ASSERT_OK_AND_ASSIGN(const float from_amax, GlobalScaleFromAmax(amax));
    SY_ASSERT_OK_AND_ASSIGN(const float from_modelopt, GlobalScaleFromModelOpt(modelopt));

    EXPECT_EQ(compressed_tensors, from_amax);
    EXPECT_NEAR(from_modelopt / from_amax, 1.0, 2e-7);
    EXPECT_NEAR(compressed_tensors * modelopt, 1.0, 2e-7);
  }
}

TEST(Nvfp4ScaleTest, RefusesWhatIsNoScale) {
  const auto bad_config = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0F, -1.0F, NAN, infinity, -infinity, 0x1p101F, 0x1p-101F}) {
    EXPECT_THAT(CheckGlobalScale(scale), bad_config) << scale;
    EXPECT_THAT(GlobalScaleFromModelOpt(scale), bad_config) << scale;
  }
  for (const float amax : {0.0F, -1.0F, NAN, infinity}) {
    EXPECT_THAT(GlobalScaleFromAmax(amax), bad_config) << amax;
  }
  SY_EXPECT_OK(CheckGlobalScale(kGlobalScaleMin));
  SY_EXPECT_OK(CheckGlobalScale(kGlobalScaleMax));
}

}  // namespace
}  // namespace switchyard
