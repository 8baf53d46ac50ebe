#include "core/resolve/layer_quant_config.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using ::testing::HasSubstr;

using Entries = std::vector<ConfigEntry>;

const auto kBadConfig = FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig);

TEST(LayerQuantConfigTest, ReadsEveryKey) {
  SY_ASSERT_OK_AND_ASSIGN(const LayerQuantConfig config,
                          ParseLayerQuantConfig(Entries{{"input_global_scale", 448.5},
                                                        {"dispatcher_output_dtype", "int8"},
                                                        {"bf16_dispatch", false}}));

  EXPECT_EQ(config.input_global_scale, 448.5F);
  EXPECT_FALSE(config.global_scale_is_null);
  EXPECT_EQ(config.dispatcher_output_dtype, DispatchDtype::kInt8);
  EXPECT_FALSE(config.bf16_dispatch);
  SY_ASSERT_OK_AND_ASSIGN(const LayerQuantConfig empty, ParseLayerQuantConfig({}));
  EXPECT_EQ(empty, LayerQuantConfig());
}

// R4: a scale that is there without a value is as if it were not.
TEST(LayerQuantConfigTest, NullsAreAsAbsent) {
  SY_ASSERT_OK_AND_ASSIGN(
      const LayerQuantConfig config,
      ParseLayerQuantConfig(Entries{{"input_global_scale", std::monostate()},
                                    {"dispatcher_output_dtype", std::monostate()}}));

  EXPECT_EQ(config.input_global_scale, std::nullopt);
  EXPECT_TRUE(config.global_scale_is_null) << "for the trace";
  EXPECT_EQ(config.dispatcher_output_dtype, std::nullopt);
}

// R10
TEST(LayerQuantConfigTest, RefusesAnUnknownDtype) {
  const absl::Status refused =
      ParseLayerQuantConfig(Entries{{"dispatcher_output_dtype", "fp4"}}).status();

  EXPECT_THAT(refused, kBadConfig);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"fp4\" is not a wire dtype"));
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"dispatcher_output_dtype", "auto"}}), kBadConfig);
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"dispatcher_output_dtype", true}}), kBadConfig);
}

// R11
TEST(LayerQuantConfigTest, RefusesMisspelledKeysWithTheRightName) {
  for (const auto& [key, right] : std::vector<std::pair<std::string, std::string>>{
           {"dispather_output_dtype", "dispatcher_output_dtype"},
           {"deepep_dispatch_output_dtype", "dispatcher_output_dtype"},
           {"deepep_dispatcher_output_dtype", "dispatcher_output_dtype"},
           {"dispatcher-output-dtype", "dispatcher_output_dtype"},
           {"input_globl_scale", "input_global_scale"},
           {"bf16_dispath", "bf16_dispatch"}}) {
    const absl::Status refused = ParseLayerQuantConfig(Entries{{key, "bf16"}}).status();
    EXPECT_THAT(refused, kBadConfig) << key;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("did you mean " + right + "?")) << key;
    EXPECT_EQ(MetadataOf(refused).at("field"), key);
  }
  const absl::Status far = ParseLayerQuantConfig(Entries{{"group_size", 128.0}}).status();
  EXPECT_EQ(far.message(),
            "quant config key group_size: no such key (known: input_global_scale, "
            "dispatcher_output_dtype, bf16_dispatch)");
}

TEST(LayerQuantConfigTest, RefusesScalesThatScaleNothing) {
  for (const double scale :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan(""), 1e300, 1e-300}) {
    EXPECT_THAT(ParseLayerQuantConfig(Entries{{"input_global_scale", scale}}), kBadConfig) << scale;
  }
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"input_global_scale", "448"}}), kBadConfig);
}

TEST(LayerQuantConfigTest, RefusesContradictionsAndRepetitions) {
  EXPECT_THAT(
      ParseLayerQuantConfig(Entries{{"bf16_dispatch", true}, {"dispatcher_output_dtype", "fp8"}}),
      kBadConfig);
  SY_EXPECT_OK(
      ParseLayerQuantConfig(Entries{{"bf16_dispatch", true}, {"dispatcher_output_dtype", "bf16"}}));
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"bf16_dispatch", true}, {"bf16_dispatch", true}}),
              kBadConfig);
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"bf16_dispatch", 1.0}}), kBadConfig);
  EXPECT_THAT(ParseLayerQuantConfig(Entries{{"bf16_dispatch", std::monostate()}}), kBadConfig);
}

}  // namespace
}  // namespace switchyard
