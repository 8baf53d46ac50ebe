// The style of the tree as a test: each rule over the repository, and each rule over a fixture that
// breaks it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/tidy/blocks.h"
#include "tests/tidy/chain_rule.h"
#include "tests/tidy/layers.h"
#include "tests/tidy/mirror_rules.h"
#include "tests/tidy/room_rules.h"
#include "tests/tidy/source_tree.h"
#include "tests/tidy/text_rules.h"

namespace switchyard::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAreArray;

const std::string kRoot = SWITCHYARD_SOURCE_DIR;
const std::string kFixtures = kRoot + "/tests/tidy/fixtures";

const SourceTree& Repository() {
  static const SourceTree tree(kRoot);
  return tree;
}

std::vector<std::string> Table(const std::string& path) {
  const SourceFile* file = Repository().Find(path);
  return file == nullptr ? std::vector<std::string>() : file->lines;
}

// What all rules find in `tree`, with the repository's tables.
std::vector<Finding> CheckAll(const SourceTree& tree) {
  const Layers layers(Table("cmake/LAYERS"));
  std::vector<Finding> findings;
  CheckLayers(tree, layers, &findings);
  CheckVendorHeaders(tree, ParseVendorRules(Table("tests/tidy/vendor_headers.tsv")), &findings);
  CheckBannedWords(tree, ParseBannedWords(Table("tests/tidy/banned_words.tsv")), &findings);
  CheckLengths(tree, &findings);
  CheckMutableStatics(tree, &findings);
  CheckPragmaOnce(tree, &findings);
  CheckSubjects(tree, &findings);
  CheckFolderCircles(tree, layers, &findings);
  CheckRooms(tree, layers, &findings);
  CheckDeviceSeam(tree, layers, &findings);
  CheckStepChain(tree, ParseChain(Table("tests/tidy/step_chain.tsv")), &findings);
  CheckSourcesAreBuilt(tree, &findings);
  const SourceFile* untested = tree.Find("tests/tidy/untested.tsv");
  CheckTestMirrorsSource(
      tree, layers,
      ParseUntested(untested == nullptr ? std::vector<std::string>() : untested->lines), &findings);
  return findings;
}

// bounds.tsv: rule -> how many findings it may have. A rule that is not there may have none.
std::map<std::string, std::size_t> ParseBounds(const std::vector<std::string>& lines) {
  std::map<std::string, std::size_t> bounds;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> columns = absl::StrSplit(line, '\t');
    std::size_t bound = 0;
    if (columns.size() == 2 && absl::SimpleAtoi(columns[1], &bound)) bounds[columns[0]] = bound;
  }
  return bounds;
}

std::vector<std::string> Keys(const std::vector<Finding>& findings) {
  std::vector<std::string> keys;
  for (const Finding& finding : findings) {
    keys.push_back(absl::StrCat(finding.path, "\t", finding.line, "\t", finding.rule));
  }
  return keys;
}

std::string Print(const std::vector<Finding>& findings) {
  return absl::StrJoin(findings, "\n", [](std::string* out, const Finding& finding) {
    absl::StrAppend(out, finding.ToString());
  });
}

TEST(TidyTest, RepositoryKeepsEveryRule) {
  ASSERT_GT(Repository().files().size(), 50U);
  ASSERT_FALSE(Table("cmake/LAYERS").empty());

  std::map<std::string, std::vector<Finding>> by_rule;
  for (Finding& finding : CheckAll(Repository())) {
    by_rule[finding.rule].push_back(std::move(finding));
  }

  std::map<std::string, std::size_t> bounds = ParseBounds(Table("tests/tidy/bounds.tsv"));
  for (const auto& [rule, findings] : by_rule) {
    EXPECT_LE(findings.size(), bounds[rule]) << Print(findings);
  }
  for (const auto& [rule, bound] : bounds) {
    const std::size_t found = by_rule[rule].size();
    if (bound == 0) continue;
    std::cout << rule << ": " << found << " findings, bound " << bound
              << (found < bound ? "; lower it in tests/tidy/bounds.tsv" : "") << "\n";
    std::cout << Print(by_rule[rule]) << "\n";
  }
}

TEST(TidyTest, LayersHaveNoCircle) {
  EXPECT_THAT(Layers(Table("cmake/LAYERS")).FindCircle(), IsEmpty());
  EXPECT_THAT(Layers({"a : b", "b : c", "c : b", "d : a"}).FindCircle(),
              ElementsAre("b", "c", "b"));
}

TEST(TidyTest, LongestLayerHoldsAFile) {
  const Layers layers({"worker : core", "worker/device : core", "core :"});

  EXPECT_EQ(layers.LayerOf("worker/device/cpu/a.h"), "worker/device");
  EXPECT_EQ(layers.LayerOf("worker/devices/a.h"), "worker");
  EXPECT_EQ(layers.LayerOf("tests/core/a.cc"), "");
  EXPECT_FALSE(layers.MayUse("worker/device", "worker"));
}

TEST(TidyTest, TablesAreRead) {
  EXPECT_GT(ParseVendorRules(Table("tests/tidy/vendor_headers.tsv")).size(), 15U);
  EXPECT_GT(ParseBannedWords(Table("tests/tidy/banned_words.tsv")).size(), 30U);
  const std::vector<ChainRow> chain = ParseChain(Table("tests/tidy/step_chain.tsv"));
  ASSERT_FALSE(chain.empty());
  EXPECT_EQ(chain.front().name, "sy_submit");
  EXPECT_NE(Repository().Find(chain.front().file), nullptr);
  EXPECT_THAT(ParseBounds({"# rule", "a\t3", "b\tmany"}), ElementsAre(Pair("a", 3U)));
}

// Each folder below fixtures/ is a tree that breaks one rule; expected.tsv says where.
class TidyFixtureTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TidyFixtureTest, IsReportedWhereItBreaksTheRule) {
  const std::string root = absl::StrCat(kFixtures, "/", GetParam());
  std::ifstream in(root + "/expected.tsv");
  std::vector<std::string> expected;
  for (std::string line; std::getline(in, line);) expected.push_back(line);
  ASSERT_FALSE(expected.empty());

  const std::vector<Finding> findings = CheckAll(SourceTree(root));

  EXPECT_THAT(Keys(findings), UnorderedElementsAreArray(expected)) << Print(findings);
  for (const Finding& finding : findings) EXPECT_GT(finding.message.size(), 15U) << "what to do?";
}

INSTANTIATE_TEST_SUITE_P(AllRules, TidyFixtureTest,
                         ::testing::Values("layers", "vendor_header", "banned_word",
                                           "mutable_static", "source_without_test",
                                           "source_not_built", "pragma_once", "folder_circle",
                                           "rooms", "device_seam", "no_subject"),
                         [](const auto& param_info) { return param_info.param; });

// Trees that are too long to keep are written for the occasion.
class WrittenTreeTest : public ::testing::Test {
 protected:
  WrittenTreeTest() {
    std::string path = ::testing::TempDir() + "/tidy_XXXXXX";
    root_ = mkdtemp(path.data());
  }
  ~WrittenTreeTest() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
};

class StepChainTest : public WrittenTreeTest {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  std::vector<std::string> Check(const std::vector<std::string>& rows) {
    std::vector<Finding> findings;
    CheckStepChain(SourceTree(root_), ParseChain(rows), &findings);
    return Keys(findings);
  }
};

TEST_F(StepChainTest, ReportsAClassInBetweenAndAFunctionThatIsNotThere) {
  Write("a.cc", "int begin(int x) {\n  return one->Submit(x);\n}");
  Write("b.cc", "int One::Submit(int x) {\n  return between_->Submit(x);\n}");
  const std::string begin = "begin\ta.cc\tbegin(\tone->Submit(";

  EXPECT_THAT(Check({begin, "One\tb.cc\tOne::Submit(\tbetween_->Submit("}), IsEmpty());
  EXPECT_THAT(Check({begin, "One\tb.cc\tOne::Submit(\ttwo_->Submit("}),
              ElementsAre("b.cc\t1\tstep-chain"));
  EXPECT_THAT(Check({begin, "Two\tc.cc\tTwo::Submit(\tEncode("}),
              ElementsAre("c.cc\t0\tstep-chain"));
}

TEST_F(StepChainTest, ReportsAFifthClass) {
  Write("a.cc", "int begin(int x) {\n  return Next(x);\n}");
  std::vector<std::string> rows{"begin\ta.cc\tbegin(\tNext("};
  for (const char* name : {"A", "B", "C", "D", "D"}) {
    rows.push_back(absl::StrCat(name, "\ta.cc\tbegin(\tNext("));
  }
  EXPECT_THAT(Check(rows), IsEmpty());

  rows.push_back("E\ta.cc\tbegin(\tNext(");
  EXPECT_THAT(Check(rows), ElementsAre("a.cc\t0\tstep-chain"));
}

class LengthTest : public WrittenTreeTest {
 protected:
  void Write(const std::string& path, int lines, const std::string& first = "",
             const std::string& last = "") {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream out(root_ / path);
    out << first << '\n';
    for (int i = 2; i < lines; ++i) out << "int Line" << i << "();\n";
    out << last << '\n';
  }
  std::vector<std::string> Check() {
    std::vector<Finding> findings;
    CheckLengths(SourceTree(root_), &findings);
    return Keys(findings);
  }
};

TEST_F(LengthTest, ReportsFilesOverTheLimitOfTheirKind) {
  Write("core/fits.h", 200);
  Write("core/long.h", 201);
  Write("core/fits.cc", 500);
  Write("core/long.cc", 501);
  Write("tests/core/fits_test.cc", 800);
  Write("tests/core/long_test.cc", 801);

  EXPECT_THAT(Check(),
              ElementsAre("core/long.cc\t501\tfile-length", "core/long.h\t201\tfile-length",
                          "tests/core/long_test.cc\t801\tfile-length"));
}

TEST_F(LengthTest, ReportsFunctionsOverSeventyLines) {
  Write("core/fits.cc", 70, "void Fits() {", "}");
  Write("core/long.cc", 71, "template <typename T = int> void Long(T x) {", "}");
  Write("core/member.cc", 71, "A::A(int x) : a_{x}, b_(2) {", "}");
  Write("core/namespace.cc", 300, "namespace switchyard {", "}");
  Write("core/table.cc", 100, "constexpr std::array<int, Count()> kTable{", "};");

  EXPECT_THAT(Check(), ElementsAre("core/long.cc\t1\tfunction-length",
                                   "core/member.cc\t1\tfunction-length"));
}

TEST(BlankTest, KeepsCodeAndColumnsAndDropsCommentsAndLiterals) {
  const std::vector<std::string> lines{"#include \"a//b.h\"",
                                       "int a = 1'000;  // volatile",
                                       "f(\"x\\\"{\", '}');  /* {",
                                       "{ */ g();",
                                       "h(R\"(raw \" {",
                                       ")\", 1);"};

  const std::vector<std::string> code = BlankCommentsAndLiterals(lines);

  EXPECT_THAT(code,
              ElementsAre("#include \"a//b.h\"", "int a = 1'000;             ",
                          "f(\"    \", ' ');      ", "     g();", "h(\"         ", " \", 1);"));
}

TEST(BlocksTest, FindsFunctionsWhateverTheirShape) {
  const Blocks blocks = FindBlocks({
      "namespace a {",
      "class B : public C {",
      " public:",
      "  B() : x_{1} {}",
      "  bool operator==(const B& other) const { return true; }",
      "};",
      "extern \" \" {",
      "int D(int x = 3) {",
      "  if (x) { return [] { return 1; }(); }",
      "}",
      "}",
      "}  ",
  });

  std::vector<std::string> heads;
  for (const Function& function : blocks.functions) heads.push_back(function.head);
  EXPECT_THAT(heads,
              ElementsAre("B() : x_", "bool operator==(const B& other) const", "int D(int x = 3)"));
}

TEST(HasWordTest, WantsWholeWords) {
  EXPECT_TRUE(HasWord("a getenv(x)", "getenv"));
  EXPECT_FALSE(HasWord("my_getenv(x)", "getenv"));
  EXPECT_FALSE(HasWord("getenvs", "getenv"));
  EXPECT_TRUE(HasWord("x/home/y", "/home/"));
  EXPECT_THAT(FindBlocks({}).functions, IsEmpty());
}

}  // namespace
}  // namespace switchyard::tidy
