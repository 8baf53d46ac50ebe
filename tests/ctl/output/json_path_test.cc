#include "ctl/output/json_path.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using ::testing::HasSubstr;

const char* const kDocument = R"({
  "workers": [{"id": "w0", "experts": 3, "ways": ["shm", "tcp"], "a.b": true},
              {"id": "w1", "experts": 12, "ways": []}],
  "plan": {"epoch": 7, "hash": {"hex": "e5"}}})";

std::string Printed(const std::string& text) {
  const auto path = JsonPath::Parse(text);
  EXPECT_TRUE(path.ok()) << path.status();
  return path.ok() ? path->Print(Json::parse(kDocument)) : "";
}

TEST(JsonPathTest, PicksFieldsAndElements) {
  EXPECT_EQ(Printed("{.plan.epoch}"), "7");
  EXPECT_EQ(Printed(".plan.epoch"), "7");
  EXPECT_EQ(Printed("plan.epoch"), "7");
  EXPECT_EQ(Printed("{$.plan['epoch']}"), "7");
  EXPECT_EQ(Printed("{@.plan.hash}"), R"({"hex":"e5"})");
  EXPECT_EQ(Printed("{.workers[1].id}"), "w1");
  EXPECT_EQ(Printed("{.workers[-2].id}"), "w0");
  EXPECT_EQ(Printed("{.workers[*].id}"), "w0 w1");
  EXPECT_EQ(Printed("{.workers[0].ways}"), R"(["shm","tcp"])");
  EXPECT_EQ(Printed("{.workers[0]['a.b']}"), "true");
  EXPECT_EQ(Printed("{.plan.*}"), R"(7 {"hex":"e5"})");
  EXPECT_EQ(Printed("{.}"), Json::parse(kDocument).dump());
}

TEST(JsonPathTest, WhatIsMissingPrintsNothing) {
  for (const char* path : {"{.nothing}", "{.workers[2].id}", "{.workers[-3]}", "{.plan.epoch.x}",
                           "{.plan[0]}", "{.workers.id}", "{.workers[0].id[*]}"}) {
    EXPECT_EQ(Printed(path), "") << path;
  }
}

TEST(JsonPathTest, WritesTextsAndRanges) {
  EXPECT_EQ(Printed("epoch {.plan.epoch}{\"\\n\"}"), "epoch 7\n");
  EXPECT_EQ(Printed("{range .workers[*]}{.id}{'\\t'}{.experts}{\"\\n\"}{end}"), "w0\t3\nw1\t12\n");
  EXPECT_EQ(Printed("{range .workers[*]}{.id}:{range .ways[*]} {@}{end};{end}!"),
            "w0: shm tcp;w1:;!");
  EXPECT_EQ(Printed("{range .workers[*]}{$.plan.epoch}{end}"), "77");
  EXPECT_EQ(Printed("{\"a}b\"}"), "a}b");
}

TEST(JsonPathTest, SaysWhatIsNotSupportedAndWhatIs) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{..id}", "\"..\" is not supported"},
      {"{.workers[?(@.id=='w0')]}", "is not supported"},
      {"{.workers[0:1]}", "\"[0:1]\" is not supported"},
      {"{.workers[0,1]}", "is not supported"},
      {"{.workers", "\"{\" without \"}\""},
      {"{.workers[0}", "\"[\" without \"]\""},
      {"{range .workers[*]}{.id}", "{range} without {end}"},
      {"{.id}{end}", "character 7: {end} without {range}"},
      {"{\"text}", "\"{\" without \"}\""},
      {"{.a b}", "is not a path"},
      {"{.a.}", "a field needs a name"}};
  for (const auto& [text, says] : bad) {
    const auto path = JsonPath::Parse(text);
    EXPECT_EQ(ReasonOf(path.status()), Reason::kBadRequest) << text;
    EXPECT_THAT(std::string(path.status().message()), HasSubstr(says)) << text;
  }
  EXPECT_THAT(std::string(JsonPath::Parse("{..id}").status().message()), HasSubstr("jq"));
}

TEST(JsonPathTest, EndsForAnyText) {
  std::uint32_t state = 7;
  const Json document = Json::parse(kDocument);
  const std::string letters = "{}[].$@*'\"\\ ae0-range end";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = 0; n < 24; ++n) {
      state = state * 1664525U + 1013904223U;
      text += letters[(state >> 16U) % letters.size()];
    }
    const auto path = JsonPath::Parse(text);
    if (!path.ok()) continue;
    EXPECT_LE(path->Print(document).size(), 100'000U);
  }
}

TEST(JsonPathTest, FirstIsTheKeyOfASort) {
  const Json document = Json::parse(kDocument);
  EXPECT_EQ(*JsonPath::Parse("{.workers[*].experts}")->First(document), 3);
  EXPECT_EQ(JsonPath::Parse("{.nothing}")->First(document), nullptr);
  EXPECT_EQ(JsonPath::Parse("{\"text\"}")->First(document), nullptr);
}

}  // namespace
}  // namespace switchyard::ctl
