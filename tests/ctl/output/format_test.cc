#include "ctl/output/format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/json.h"
#include "yaml-cpp/yaml.h"

namespace switchyard::ctl {
namespace {

using ::testing::HasSubstr;

// The document that a YAML reader makes of `node`, whose scalars it takes by their look.
Json FromYaml(const YAML::Node& node) {
  if (node.IsMap()) {
    Json json = Json::object();
    for (const auto& item : node) json[item.first.Scalar()] = FromYaml(item.second);
    return json;
  }
  if (node.IsSequence()) {
    Json json = Json::array();
    for (const auto& item : node) json.push_back(FromYaml(item));
    return json;
  }
  if (node.IsNull()) return nullptr;
  // Quotes make a text of anything.
  if (node.Tag() == "!") return node.Scalar();
  const Json plain = Json::parse(node.Scalar(), nullptr, /*allow_exceptions=*/false);
  return plain.is_discarded() ? Json(node.Scalar()) : plain;
}

TEST(FormatDocumentsTest, YamlMeansTheSameAsJson) {
  const Json document = Json::parse(R"({
    "plain": "low_latency", "path": "/models/x", "endpoint": "127.0.0.1:7700", "number": "7",
    "flag": "true", "word": "No", "empty": "", "dash": "- a", "lines": "a\nb: \"c\" # d", "dot": ".5",
    "n": 18446744073709551615, "t": true, "f": 0.25, "none": {}, "nothing": [],
    "deep": [[1, [2, {}]], {"a": [{"b": {"c": []}, "d": "x y"}]}, "w0", []],
    "a key": {"1": 2, "true": null}})");

  const std::string yaml = FormatDocuments(Print(document), OutputFormat::kYaml, "");

  EXPECT_EQ(FromYaml(YAML::Load(yaml)).dump(), document.dump()) << yaml;
  EXPECT_THAT(yaml, HasSubstr("plain: low_latency\n"));
  EXPECT_THAT(yaml, HasSubstr("number: \"7\"\n"));
  EXPECT_THAT(yaml, HasSubstr("word: \"No\"\n"));
}

TEST(FormatDocumentsTest, SeveralDocumentsStaySeveral) {
  const std::string two = Print({{"a", 1}}) + Print({{"a", 2}});

  EXPECT_EQ(FormatDocuments(two, OutputFormat::kYaml, ""), "a: 1\n---\na: 2\n");
  EXPECT_EQ(FormatDocuments(two, OutputFormat::kJsonLines, ""), "{\"a\":1}\n{\"a\":2}\n");
  EXPECT_EQ(FormatDocuments(two, OutputFormat::kJsonPath, "{.a}"), "1\n2\n");
  EXPECT_EQ(FormatDocuments(two, OutputFormat::kJson, ""), two);
  EXPECT_EQ(FormatDocuments("", OutputFormat::kYaml, ""), "");
}

TEST(FormatDocumentsTest, NamesAndLinesAreThoseOfTheList) {
  const std::string applied =
      Print({{"applied", {{{"result", "created"}, {"deployment", {{"spec", {{"name", "a"}}}}}}}}});
  const std::string layers = Print({{"epoch", 3}, {"layers", {{{"layer", 1}}, {{"layer", 4}}}}});

  EXPECT_EQ(FormatDocuments(applied, OutputFormat::kName, ""), "deployment/a\n");
  EXPECT_EQ(FormatDocuments(layers, OutputFormat::kName, ""), "layer/1\nlayer/4\n");
  EXPECT_EQ(FormatDocuments(layers, OutputFormat::kJsonLines, ""),
            "{\"layer\":1}\n{\"layer\":4}\n");
  EXPECT_EQ(FormatDocuments(Print({{"workers", Json::array()}}), OutputFormat::kName, ""), "");
}

TEST(WithoutHeadTest, LeavesRowsAndSentences) {
  EXPECT_EQ(WithoutHead("ID  MAX TOKENS\nw0  4\n"), "w0  4\n");
  EXPECT_EQ(WithoutHead("\nID  STATE\nw0  live\n"), "\nw0  live\n");
  EXPECT_EQ(WithoutHead("There are no workers.\n"), "There are no workers.\n");
  EXPECT_EQ(WithoutHead(""), "");
}

// Without its colors the text is the same, so that columns stay where they are.
std::string Plain(std::string text) {
  for (std::size_t at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b')) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  return text;
}

TEST(ColoredTest, ColorsHeadsAndStatesOnly) {
  const std::string table =
      "NAME     STATE    ACTIVITY\n"
      "häß      serving  serving epoch 1\n"
      "live     refused  a\n"
      "                  live b\n"
      "serving  reading  c\n";

  const std::string colored = Colored(table);

  EXPECT_EQ(Plain(colored), table);
  EXPECT_THAT(colored, HasSubstr("\x1b[1mNAME     STATE    ACTIVITY\x1b[0m\n"));
  EXPECT_THAT(colored, HasSubstr("häß      \x1b[32mserving\x1b[0m  serving epoch 1\n"));
  EXPECT_THAT(colored, HasSubstr("live     \x1b[31mrefused\x1b[0m  a\n"));
  EXPECT_THAT(colored, HasSubstr("\n                  live b\n"));
  EXPECT_THAT(colored, HasSubstr("serving  \x1b[33mreading\x1b[0m  c\n"));
  EXPECT_THAT(Colored(table + "\nA text follows it.\n"), HasSubstr("\nA text follows it.\n"));
  EXPECT_EQ(Colored("There are no workers.\n"), "There are no workers.\n");
  EXPECT_EQ(ColoredError("syctl: no\n"), "\x1b[31msyctl:\x1b[0m no\n");
}

}  // namespace
}  // namespace switchyard::ctl
