#include "services/config/yaml_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(YamlTextTest, NamesFileLineAndField) {
  const absl::Status error = BadConfigAt("a.yaml", 7, "memory.max", "is too much");

  EXPECT_EQ(error.message(), "a.yaml:7: memory.max: is too much");
  EXPECT_EQ(MetadataOf(error).at("line"), "7");
  EXPECT_EQ(MetadataOf(error).at("field"), "memory.max");
  EXPECT_EQ(BadConfigAt("a.yaml", 1, "", "is empty").message(), "a.yaml:1: is empty");
}

TEST(YamlTextTest, KnowsItsWords) {
  EXPECT_EQ(DidYouMean("mode", {"mode", "phase"}), "; did you mean \"mode\"? (known: mode, phase)");
  EXPECT_EQ(DidYouMean("", {"mode"}), " (known: mode)");
  EXPECT_EQ(NameOfFile(kStdin), "stdin");
  EXPECT_EQ(NameOfFile("a.yaml"), "a.yaml");
}

TEST(YamlTextTest, EmptyDocumentsAreLeftOut) {
  SY_ASSERT_OK_AND_ASSIGN(const auto documents,
                          ParseYaml("---\na: 1\n---\n# b\n---\nc: 2\n---\n", "a.yaml"));

  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(LineOf(documents[0]), 2);
  EXPECT_EQ(LineOf(documents[1]), 6);
}

TEST(YamlTextTest, AFileThatIsTooLargeIsCutAndRefused) {
  const testing::TempDir dir;
  const std::string path = dir.Write("large.yaml", std::string((1 << 20) + 5, '#'));

  SY_ASSERT_OK_AND_ASSIGN(const std::string text, ReadConfigBytes(path));

  EXPECT_EQ(text.size(), (std::size_t{1} << 20) + 1);
  EXPECT_THAT(ParseYaml(text, path),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
