#include "model/io/json_view.h"

#include <array>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard::internal {
namespace {

using testing::FailsWith;
using Json = nlohmann::json;

auto Refused() { return FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig); }

TEST(JsonViewTest, ReadsEachTypeAndKnowsAbsentFromNull) {
  const Json json = {{"i", 7},          {"b", true},   {"s", "x"},       {"n", nullptr},
                     {"l", {"a", "b"}}, {"z", {1, 2}}, {"o", {{"k", 1}}}};
  const JsonView view(json, "q");

  EXPECT_EQ(view.Int("i", 0, 7).value(), 7);
  EXPECT_EQ(view.Bool("b").value(), true);
  EXPECT_EQ(view.String("s").value(), "x");
  EXPECT_EQ(view.Strings("l").value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(view.Ints("z", 1, 2).value(), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(view.Int("n", 0, 1).value(), std::nullopt);
  EXPECT_EQ(view.Int("absent", 0, 1).value(), std::nullopt);
  EXPECT_EQ(view.PresenceOf("n"), JsonView::Presence::kNull);
  EXPECT_EQ(view.PresenceOf("absent"), JsonView::Presence::kAbsent);
  EXPECT_TRUE(view.Has("i"));
  EXPECT_FALSE(view.Has("n"));
  SY_ASSERT_OK_AND_ASSIGN(const auto object, view.Object("o"));
  EXPECT_EQ(object->path(), "q.o");
  EXPECT_EQ(object->keys(), std::vector<std::string>{"k"});
}

TEST(JsonViewTest, EveryMistypeNamesTheWholePath) {
  const Json json = {{"s", "x"}, {"i", -3}, {"u", UINT64_MAX}, {"f", 1.5}, {"l", {1, "a"}}};
  const JsonView view(json, "q.w");
  const absl::Status refusals[] = {
      view.Int("s", 0, 9).status(),  view.Int("i", 0, 9).status(),  view.Int("u", 0, 9).status(),
      view.Int("f", 0, 9).status(),  view.Bool("s").status(),       view.Bool("i").status(),
      view.String("i").status(),     view.Strings("s").status(),    view.Strings("l").status(),
      view.Ints("l", 0, 9).status(), view.Ints("s", 0, 9).status(), view.Object("l").status()};

  for (const absl::Status& status : refusals) {
    EXPECT_THAT(status, Refused());
    EXPECT_EQ(MetadataOf(status).at("key").rfind("q.w.", 0), 0U) << status;
  }
}

TEST(JsonViewTest, UnknownKeysAreRefusedAndMisspellingsExplained) {
  constexpr std::array kKnown{"a"};
  constexpr std::array kMore{"b"};
  const Json good = {{"a", 1}, {"b", 2}};
  const Json bad = {{"a", 1}, {"c", 2}};
  const Json misspelled = {{"dispather_output_dtype", "bf16"}};

  SY_EXPECT_OK(JsonView(good, "q").OnlyKeys(kKnown, kMore));
  EXPECT_THAT(JsonView(good, "q").OnlyKeys(kKnown), Refused());
  const absl::Status status = JsonView(bad, "q").OnlyKeys(kKnown, kMore);
  EXPECT_THAT(status, Refused());
  EXPECT_EQ(MetadataOf(status).at("key"), "q.c");
  EXPECT_NE(JsonView(misspelled, "q").OnlyKeys(kKnown).message().find("'dispatcher_output_dtype'"),
            absl::string_view::npos);
}

TEST(JsonViewTest, AnEmptyKeyIsNamedToo) {
  const Json json = {{"", 1}};

  EXPECT_EQ(MetadataOf(JsonView(json, "").OnlyKeys({})).at("key"), "''");
  EXPECT_EQ(MetadataOf(JsonView(json, "q").OnlyKeys({})).at("key"), "q.''");
}

TEST(JsonViewTest, AFeatureThatIsOffMayBeWrittenDown) {
  const Json json = {{"off", false},
                     {"none", nullptr},
                     {"empty", Json::object()},
                     {"list", Json::array()},
                     {"on", true},
                     {"full", {{"k", 1}}},
                     {"text", "x"}};
  const JsonView view(json, "");

  for (const char* key : {"off", "none", "empty", "list", "absent"}) {
    SY_EXPECT_OK(view.MustBeOff(key, "why"));
  }
  for (const char* key : {"on", "full", "text"}) {
    EXPECT_THAT(view.MustBeOff(key, "why"),
                FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported))
        << key;
  }
}

}  // namespace
}  // namespace switchyard::internal
