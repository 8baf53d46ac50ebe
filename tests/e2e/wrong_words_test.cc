// Command lines as somebody types them who knows kubectl, or is in a hurry: each ends with the
// documented exit code and a text that helps. The table is tests/e2e/wrong_words.tsv.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Processes;
using testing::ProgramResult;
using testing::RunProgram;

constexpr char kTable[] = SWITCHYARD_SOURCE_DIR "/tests/e2e/wrong_words.tsv";
constexpr std::size_t kRowsMin = 40;

struct Row {
  int line = 0;
  std::string words;
  int code = 0;
  std::string text;
};

std::vector<Row> ReadTable() {
  std::vector<Row> rows;
  std::ifstream in(kTable);
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (text.empty() || text[0] == '#') continue;
    const std::vector<std::string> cells = absl::StrSplit(text, '\t');
    Row row;
    row.line = line;
    EXPECT_EQ(cells.size(), 3U) << kTable << ":" << line;
    if (cells.size() != 3) continue;
    row.words = cells[0];
    EXPECT_TRUE(absl::SimpleAtoi(cells[1], &row.code)) << kTable << ":" << line;
    row.text = cells[2];
    rows.push_back(row);
  }
  return rows;
}

class WrongWordsTest : public Processes {
 protected:
  void SetUp() override {
    Deploy(1);
    ASSERT_NE(deployment_, nullptr);
    const std::string model = absl::StrCat("checkpoint: ", testing::kShippedModel, "\n");
    const std::map<std::string, std::string> files = {
        {"good.yaml", absl::StrCat("name: other\n", model)},
        {"typo.yaml", "name: other\ncheckpiont: /x\n"},
        {"name.yaml", absl::StrCat("name: a b\n", model)},
        {"kube.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"},
        {"minus.json", "{\"name\": \"other\", \"checkpoint\": \"/m\", \"min_workers\": -1}"},
        {"twice.yaml", absl::StrCat("name: a\n", model, "---\nname: a\n", model)},
        {"empty.yaml", ""},
        {"nowhere.yaml", "name: other\ncheckpoint: /nonexistent/model\n"},
    };
    for (const auto& [name, text] : files) std::ofstream(folder_.Join(name)) << text;
  }

  // "{dir}", "{bin}" and "{target}" stand for what they say.
  [[nodiscard]] ProgramResult Run(const std::string& words) const {
    const std::string text = absl::StrReplaceAll(
        words, {{"{dir}", folder_.Join("")}, {"{target}", deployment_->coordinator()}});
    std::vector<std::string> argv = absl::StrSplit(text, ' ');
    argv[0] = absl::StrCat(testing::kBinDir, "/", argv[0]);
    const bool asks = absl::StrContains(argv[0], "/syctl") && !absl::StrContains(words, "--target");
    if (asks) argv.insert(argv.begin() + 1, {"--target", deployment_->coordinator()});
    return RunProgram(argv);
  }

  testing::TempDir folder_;
};

TEST_F(WrongWordsTest, EachIsToldWhatIsWrongAndWhatToDo) {
  const std::vector<Row> rows = ReadTable();
  ASSERT_GE(rows.size(), kRowsMin);
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat(kTable, ":", row.line, ": ", row.words));
    const ProgramResult result = Run(row.words);
    EXPECT_EQ(result.code, row.code) << result.out << result.err;
    const std::string wanted =
        absl::StrReplaceAll(row.text, {{"{dir}", folder_.Join("")}, {"\\n", "\n"}});
    EXPECT_THAT(result.err, HasSubstr(wanted));
    EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
  }
}

}  // namespace
}  // namespace switchyard
