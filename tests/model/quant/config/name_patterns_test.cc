#include "model/quant/config/name_patterns.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

auto Refused() { return FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig); }

TEST(NamePatternsTest, EmptyNamesNothing) {
  const NamePatterns patterns;

  EXPECT_TRUE(patterns.empty());
  EXPECT_EQ(patterns.Match("lm_head"), "");
  EXPECT_EQ(patterns.Match(""), "");
}

// R95: compressed-tensors' names are whole names; regular expressions stand at the start of the
// name and may end before its end, as Python's re.match takes them. The list is Kimi-K2.5's.
TEST(NamePatternsTest, ExactNamesAndRegularExpressionsOfKimi) {
  NamePatterns patterns;
  for (const char* entry :
       {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:vision_tower.*", "re:mm_projector.*"}) {
    SY_ASSERT_OK(patterns.AddExactOrRegex(entry, "ignore"));
  }

  EXPECT_EQ(patterns.Match("lm_head"), "lm_head");
  EXPECT_EQ(patterns.Match("model.lm_head"), "");
  EXPECT_EQ(patterns.Match("lm_head.weight"), "");
  EXPECT_EQ(patterns.Match("language_model.model.layers.3.self_attn.q_proj"), "re:.*self_attn.*");
  EXPECT_EQ(patterns.Match("model.layers.0.mlp.gate_proj"),
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*");
  EXPECT_EQ(patterns.Match("model.layers.3.mlp.shared_experts.up_proj"), "re:.*shared_experts.*");
  EXPECT_EQ(patterns.Match("model.layers.3.mlp.shared_expert.up_proj"), "");
  EXPECT_EQ(patterns.Match("language_model.model.layers.3.mlp.experts.0.gate_proj"), "");
  EXPECT_EQ(patterns.Match("vision_tower.blocks.0"), "re:vision_tower.*");
  EXPECT_EQ(patterns.Match("model.vision_tower.blocks.0"), "") << "anchored at the start";
}

// R95: ModelOpt's wildcard crosses dots, and the rest of the entry is literal.
TEST(NamePatternsTest, GlobsMatchTheWholeName) {
  NamePatterns patterns;
  for (const char* entry : {"lm_head", "model.layers.61*", "*.self_attn.*", "mtp*shared_expert"}) {
    SY_ASSERT_OK(patterns.AddGlob(entry, "ignore"));
  }

  EXPECT_EQ(patterns.Match("model.layers.61.mlp.experts"), "model.layers.61*");
  EXPECT_EQ(patterns.Match("model.layers.6.mlp.experts"), "");
  EXPECT_EQ(patterns.Match("modelxlayers.61"), "") << "a dot is a dot";
  EXPECT_EQ(patterns.Match("model.layers.2.self_attn.q_proj"), "*.self_attn.*");
  EXPECT_EQ(patterns.Match("self_attn.q_proj"), "");
  EXPECT_EQ(patterns.Match("mtp.layers.0.mlp.shared_expert"), "mtp*shared_expert");
  EXPECT_EQ(patterns.Match("mtp.layers.0.mlp.shared_experts"), "");
  EXPECT_EQ(patterns.Match("lm_head"), "lm_head");
  EXPECT_EQ(patterns.Match("lm_head.x"), "");
}

// A slow and obvious matcher of globs.
bool GlobByDefinition(absl::string_view glob, absl::string_view name) {
  if (glob.empty()) return name.empty();
  if (glob[0] != '*') {
    return !name.empty() && glob[0] == name[0] && GlobByDefinition(glob.substr(1), name.substr(1));
  }
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (GlobByDefinition(glob.substr(1), name.substr(i))) return true;
  }
  return false;
}

TEST(NamePatternsTest, GlobsEqualTheirDefinitionOnRandomNames) {
  SeededRng rng(7);
  int matches = 0;
  for (int round = 0; round < 4'000; ++round) {
    std::string glob = "*";
    std::string name;
    for (std::uint64_t i = rng.Below(7); i > 0; --i) glob += "ab.*"[rng.Below(4)];
    for (std::uint64_t i = rng.Below(9); i > 0; --i) name += "ab."[rng.Below(3)];
    NamePatterns patterns;
    SY_ASSERT_OK(patterns.AddGlob(glob, "k"));
    const bool matched = !patterns.Match(name).empty();
    ASSERT_EQ(matched, GlobByDefinition(glob, name)) << glob << " on " << name;
    matches += matched ? 1 : 0;
  }
  EXPECT_GT(matches, 200);
}

// R95: a list of AWQ or FP8 names whole parts of a name, so neither half of the trap
// "shared_expert" and "shared_experts" names the other, and a router "mlp.gate" is not "gate_proj".
TEST(NamePatternsTest, ComponentsAreWholePartsOfAName) {
  NamePatterns patterns;
  for (const char* entry : {"mlp.gate", "shared_expert", "visual.", "model.layers.0"}) {
    SY_ASSERT_OK(patterns.AddComponents(entry, "modules_to_not_convert"));
  }

  EXPECT_EQ(patterns.Match("model.layers.1.mlp.gate"), "mlp.gate");
  EXPECT_EQ(patterns.Match("model.layers.1.mlp.gate_proj"), "");
  EXPECT_EQ(patterns.Match("model.layers.1.mlp.experts.0.gate_proj"), "");
  EXPECT_EQ(patterns.Match("model.layers.1.mlp.shared_expert.up_proj"), "shared_expert");
  EXPECT_EQ(patterns.Match("model.layers.1.mlp.shared_experts.up_proj"), "");
  EXPECT_EQ(patterns.Match("model.visual.blocks.3"), "visual");
  EXPECT_EQ(patterns.Match("model.visual_merger.3"), "");
  EXPECT_EQ(patterns.Match("model.layers.0.mlp.experts.4.up_proj"), "model.layers.0");
  EXPECT_EQ(patterns.Match("model.layers.01"), "");
}

TEST(NamePatternsTest, RefusesWhatItCannotMatch) {
  NamePatterns patterns;
  EXPECT_THAT(patterns.AddExact("", "k"), Refused());
  EXPECT_THAT(patterns.AddExact(std::string(kNamePatternLimits.bytes_max + 1, 'a'), "k"),
              Refused());
  EXPECT_THAT(patterns.AddComponents(".", "k"), Refused());
  for (const char* glob : {"a[0-9]", "model?layers", "a b", "a\\b", "a(b)"}) {
    EXPECT_THAT(patterns.AddGlob(glob, "k"), Refused()) << glob;
  }
  for (const char* regex : {"re:(", "re:[a", "re:(?!x)a", "re:(?<=x)a", "re:(a)\\1",
                            "re:", "re:((a{100}){100}){100}", "re:(?P<n>a)(?P=n)"}) {
    const absl::Status status = patterns.AddExactOrRegex(regex, "quantization_config.ignore");
    ASSERT_THAT(status, Refused()) << regex;
    EXPECT_EQ(MetadataOf(status).at("key"), "quantization_config.ignore");
  }
}

TEST(NamePatternsTest, HoldsToItsLimits) {
  NamePatterns patterns;
  for (std::size_t i = 0; i < kNamePatternLimits.names_max; ++i) {
    SY_ASSERT_OK(patterns.AddExact(absl::StrCat("m", i), "k"));
  }
  EXPECT_THAT(patterns.AddExact("one more", "k"), Refused());
  for (std::size_t i = 0; i < kNamePatternLimits.regexes_max; ++i) {
    SY_ASSERT_OK(patterns.AddRegex(absl::StrCat("r", i), "k"));
  }
  EXPECT_THAT(patterns.AddRegex("one.more", "k"), Refused());
  for (std::size_t i = 0; i < kNamePatternLimits.globs_max; ++i) {
    SY_ASSERT_OK(patterns.AddGlob(absl::StrCat("g*", i), "k"));
  }
  EXPECT_THAT(patterns.AddGlob("g*more", "k"), Refused());
}

// Patterns that take a backtracking engine years end at once.
TEST(NamePatternsTest, ExponentialRegularExpressionsEndAtOnce) {
  NamePatterns patterns;
  SY_ASSERT_OK(patterns.AddExactOrRegex("re:(a*)*(a*)*(a|a)*b$", "k"));
  SY_ASSERT_OK(patterns.AddGlob(absl::StrCat(std::string(500, '*'), "b"), "k"));

  EXPECT_EQ(patterns.Match(std::string(100'000, 'a')), "");
}

TEST(NamePatternsTest, MovesWithItsPatterns) {
  NamePatterns patterns;
  SY_ASSERT_OK(patterns.AddExactOrRegex("re:a+", "k"));

  const NamePatterns moved = std::move(patterns);

  EXPECT_EQ(moved.Match("aaab"), "re:a+");
  EXPECT_FALSE(moved.empty());
}

}  // namespace
}  // namespace switchyard
