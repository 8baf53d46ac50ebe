#include "model/experts/layer_facts.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

LayerQuant QuantOf(const ProjectionQuant& projection) {
  LayerQuant quant;
  quant.scheme = SchemeOf(projection);
  quant.projections.fill(projection);
  return quant;
}

const LayerQuant kNvfp4 = QuantOf({.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16});
const LayerQuant kPlain = QuantOf({});
constexpr LayerInputScales kEqual{0.5F, 0.5F, 0.25F, 0.75F};

// The scale is there when all experts have one.
TEST(LayerFactsTest, Nvfp4RowsNeedOneScaleForAllExperts) {
  const DispatchKeys keys;
  LayerSource source{.layer = LayerId{3},
                     .quantized_checkpoint = true,
                     .quant = kNvfp4,
                     .keys = keys,
                     .input_scales = kEqual};
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts one, ResolverFactsOf(source));
  EXPECT_EQ(one.layer.value, 3);
  EXPECT_EQ(one.scheme, QuantScheme::kNvfp4);
  EXPECT_EQ(one.quant_config->input_global_scale, 2.0F);

  source.input_scales = LayerInputScales{0.5F, 0.75F, 0.25F, 0.25F};
  EXPECT_EQ(ResolverFactsOf(source)->quant_config->input_global_scale, std::nullopt);
  source.input_scales = std::nullopt;
  EXPECT_EQ(ResolverFactsOf(source)->quant_config->input_global_scale, std::nullopt);
}

// A null is an answer, whatever the tensors say.
TEST(LayerFactsTest, ANullInTheConfigSwitchesTheScaleOff) {
  DispatchKeys keys;
  keys.input_global_scale = KeyPresence::kNull;
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts facts, ResolverFactsOf({.layer = LayerId{0},
                                                                   .quantized_checkpoint = true,
                                                                   .quant = kNvfp4,
                                                                   .keys = keys,
                                                                   .input_scales = kEqual}));
  EXPECT_TRUE(facts.quant_config->global_scale_is_null);
  EXPECT_EQ(facts.quant_config->input_global_scale, std::nullopt);
}

TEST(LayerFactsTest, ScalesThatArePowersOfTwoAreSaid) {
  const DispatchKeys keys;
  for (const bool powers : {false, true}) {
    const LayerQuant quant = QuantOf(
        {.layout = QuantLayout::kFp8Block, .block = {128, 128}, .power_of_two_scales = powers});
    SY_ASSERT_OK_AND_ASSIGN(
        const LayerFacts facts,
        ResolverFactsOf(
            {.layer = LayerId{0}, .quantized_checkpoint = true, .quant = quant, .keys = keys}));
    EXPECT_EQ(facts.power_of_two_scales, powers);
  }
}

// An unquantized draft is not an excluded layer.
TEST(LayerFactsTest, LayersWithoutASchemeAreLeftOutButDraftsAreNot) {
  DispatchKeys keys;
  keys.dispatcher_output_dtype = "bf16";
  LayerSource source{
      .layer = LayerId{0}, .quantized_checkpoint = true, .quant = kPlain, .keys = keys};
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts base, ResolverFactsOf(source));
  EXPECT_TRUE(base.excluded);
  EXPECT_EQ(base.quant_config->dispatcher_output_dtype, DispatchDtype::kBf16);

  source.role = LayerRole::kDraft;
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts draft, ResolverFactsOf(source));
  EXPECT_FALSE(draft.excluded);
  EXPECT_FALSE(draft.quant_config.has_value());

  source.role = LayerRole::kBase;
  source.quantized_checkpoint = false;
  SY_ASSERT_OK_AND_ASSIGN(const LayerFacts whole, ResolverFactsOf(source));
  EXPECT_FALSE(whole.excluded);
  EXPECT_FALSE(whole.quant_config.has_value());
}

TEST(LayerFactsTest, KeysThatSayNothingSensibleAreRefused) {
  DispatchKeys keys;
  keys.dispatcher_output_dtype = "bf17";
  EXPECT_THAT(
      ResolverFactsOf(
          {.layer = LayerId{0}, .quantized_checkpoint = true, .quant = kNvfp4, .keys = keys}),
      FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
