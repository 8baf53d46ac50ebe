#include "worker/collective/group_codecs.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using ::testing::Contains;
using testing::FailsWith;
using ::testing::HasSubstr;

CollectiveGroup GroupOf(std::vector<LayerForm> forms) {
  CollectiveGroup group;
  group.forms = std::move(forms);
  return group;
}

class GroupCodecsTest : public ::testing::Test {
 protected:
  GroupCodecsTest() : device_(*CpuBackend::Create({.kernel_family = "scalar"})) {}
  const std::unique_ptr<CpuBackend> device_;
};

TEST_F(GroupCodecsTest, EachLayerHasTheCodecOfItsForm) {
  SY_ASSERT_OK_AND_ASSIGN(const GroupCodecs codecs,
                          GroupCodecs::Make(*device_, GroupOf({{LayerId{1}, kFp8Format},
                                                               {LayerId{2}, kBf16Format},
                                                               {LayerId{5}, kNvfp4Format, 2.0F},
                                                               {LayerId{6}, kNvfp4Format, 3.0F},
                                                               {LayerId{9}, kFp8Format}})));

  EXPECT_EQ(codecs.Of(LayerId{1}).rows->format(), kFp8Format);
  EXPECT_EQ(codecs.Of(LayerId{2}).rows, nullptr) << "BF16 needs none";
  EXPECT_EQ(codecs.Of(LayerId{5}).rows->format(), kNvfp4Format);
  EXPECT_EQ(codecs.Of(LayerId{5}).rows->global_scale(), 2.0F);
  EXPECT_EQ(codecs.Of(LayerId{6}).rows->global_scale(), 3.0F);
  EXPECT_EQ(codecs.Of(LayerId{9}).rows, codecs.Of(LayerId{1}).rows) << "one for all alike";
  EXPECT_EQ(codecs.Of(LayerId{1}).sums, nullptr);
  for (const std::int32_t none : {0, 3, 10}) EXPECT_EQ(codecs.Of(LayerId{none}).rows, nullptr);
}

TEST_F(GroupCodecsTest, SumsMayHaveACodec) {
  CollectiveGroup group = GroupOf({{LayerId{1}, kBf16Format}, {LayerId{2}, kFp8Format}});
  group.combine_dtype = DispatchDtype::kFp8;

  SY_ASSERT_OK_AND_ASSIGN(const GroupCodecs codecs, GroupCodecs::Make(*device_, group));

  for (const std::int32_t layer : {1, 2}) {
    EXPECT_EQ(codecs.Of(LayerId{layer}).sums->format(), kFp8Format);
  }
}

TEST_F(GroupCodecsTest, AFormThatTheDeviceDoesNotHaveNamesTheLayer) {
  const auto codecs = GroupCodecs::Make(
      *device_, GroupOf({{LayerId{1}, kFp8Format}, {LayerId{7}, kNvfp4Format, -1.0F}}));

  EXPECT_THAT(codecs.status(), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(codecs.status().message()), HasSubstr("layer 7"));
  EXPECT_THAT(MetadataOf(codecs.status()), Contains(std::pair("layer", "7")));
}

}  // namespace
}  // namespace switchyard
