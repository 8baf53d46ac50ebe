#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/options/read_options.h"
#include "tests/services/options/toy_table.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::IsEmpty;
using testing::ToySettings;
using testing::ToyTable;

class OptionFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<GivenOption>> Read(const std::string& text) {
    return ReadOptionFile(table_, dir_.Write("toy.yaml", text));
  }
  // The error without the folder.
  std::string Refusal(const std::string& text) {
    const auto read = Read(text);
    EXPECT_THAT(read, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    std::string message(read.status().message());
    const std::string folder = dir_.path() + "/";
    if (message.compare(0, folder.size(), folder) == 0) message.erase(0, folder.size());
    return message;
  }

  const testing::TempDir dir_;
  ToySettings settings_;
  const OptionTable table_ = ToyTable(&settings_);
};

TEST_F(OptionFileTest, ReadsKeysWithTheirLines) {
  SY_ASSERT_OK_AND_ASSIGN(const auto given,
                          Read("# a comment\nmemory:\n  bytes_max: 64GiB\n\npool:\n  id: w0\n"));

  ASSERT_EQ(given.size(), 2U);
  EXPECT_EQ(given[0].key, "memory.bytes_max");
  EXPECT_THAT(given[0].values, ElementsAre("64GiB"));
  EXPECT_EQ(given[0].where, dir_.Join("toy.yaml") + ":3");
  EXPECT_EQ(given[1].where, dir_.Join("toy.yaml") + ":6");
}

TEST_F(OptionFileTest, ListsMayBeOneWordAndPathsBelongToTheFolder) {
  SY_ASSERT_OK_AND_ASSIGN(const auto one, Read("pool: {files: a.yaml}\n"));
  SY_ASSERT_OK_AND_ASSIGN(const auto two, Read("pool:\n  files: [a.yaml, /etc/b.yaml]\n"));

  EXPECT_THAT(one.front().values, ElementsAre(dir_.Join("a.yaml")));
  EXPECT_THAT(two.front().values, ElementsAre(dir_.Join("a.yaml"), "/etc/b.yaml"));
}

TEST_F(OptionFileTest, FilesAndSectionsWithoutKeysSetNothing) {
  for (const char* text :
       {"", "# all commented out\n", "pool:\n", "pool:\n  # id: w0\n", "---\n"}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto given, Read(text));
    EXPECT_THAT(given, IsEmpty()) << text;
  }
}

TEST_F(OptionFileTest, RefusesWithLineAndNearestWord) {
  EXPECT_EQ(Refusal("pool:\n  id: a\nmemry:\n  x: 1\n"),
            "toy.yaml:3: memry: no such section; did you mean \"memory\"? (known: pool, memory, "
            "timeouts)");
  EXPECT_EQ(Refusal("timeouts:\n  retry_frist: 1s\n"),
            "toy.yaml:2: timeouts.retry_frist: no such key; did you mean \"retry_first\"? (known: "
            "retry_first, retry_last)");
  EXPECT_EQ(Refusal("pool:\n  bytes_max: 1\n"),
            "toy.yaml:2: pool.bytes_max: no such key; did you mean \"memory.bytes_max\"?");
  EXPECT_EQ(Refusal("bytes_max: 1\n"),
            "toy.yaml:1: bytes_max: belongs into the section \"memory\"");
  EXPECT_EQ(Refusal("pool:\n  id: a\n  id: b\n"), "toy.yaml:3: pool.id: is given twice");
  EXPECT_EQ(Refusal("pool: {id: a}\npool: {id: b}\n"), "toy.yaml:2: pool: is given twice");
  EXPECT_EQ(Refusal("pool:\n  id:\n"), "toy.yaml:2: pool.id: has no value");
  EXPECT_EQ(Refusal("pool:\n  id: [a]\n"), "toy.yaml:2: pool.id: needs a single value");
  EXPECT_EQ(Refusal("pool:\n  files: [[a]]\n"),
            "toy.yaml:2: pool.files: needs single words in its list");
  EXPECT_EQ(Refusal("pool: 5\n"), "toy.yaml:1: pool: needs keys and values");
  EXPECT_EQ(Refusal("- pool\n"), "toy.yaml:1: needs sections, each with keys and values");
  EXPECT_EQ(Refusal("pool:\n  id: a\n---\npool:\n  id: b\n"),
            "toy.yaml:4: has more than one document");
  EXPECT_EQ(Refusal("pool: [\n").substr(0, 24), "toy.yaml:2: is not YAML:");
}

TEST_F(OptionFileTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT(ReadOptionFile(table_, dir_.Join("none.yaml")),
              FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
