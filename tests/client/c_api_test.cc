// switchyard.h, switchyard_graph.h and switchyard_worker.h as their callers have them:
// libswitchyard.so from a C program and from Python, on a deployment of processes, and what the
// library exports.
#include <set>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/handle_pool.h"
#include "client/switchyard.h"
#include "harness/local_deployment.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::ReadBytes;
using testing::TempDir;

constexpr char kLibrary[] = SY_LIBRARY;

// A library with AddressSanitizer in it wants the runtime to be loaded first; Python itself leaks.
#ifdef __SANITIZE_ADDRESS__
constexpr char kPython[] =
    "env LD_PRELOAD=\"$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so)\" "
    "ASAN_OPTIONS=detect_leaks=0 python3";
#else
constexpr char kPython[] = "python3";
#endif

// Runs a shell command to its end; what it printed, on both outputs, comes in `output`.
int RunCommand(const std::string& command, std::string* output) {
  const TempDir dir;
  const std::string file = dir.Join("output");
  auto process = ChildProcess::Spawn(
      {"/bin/sh", "-c", absl::StrCat("exec ", command, " >", file, " 2>&1")}, dir.Join("log"));
  EXPECT_THAT(process, testing::IsOk());
  if (!process.ok()) return -1;
  const auto status = process->Wait(std::chrono::seconds(50));
  EXPECT_THAT(status, testing::IsOk());
  *output = ReadBytes(file);
  return status.ok() && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
}

class CApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.bin_dir = SY_BIN_DIR;
    options.checkpoint = SY_SHIPPED_MODEL;
    options.workers = 2;
    options.worker_flags = {"--net-devices", "lo"};
    SY_ASSERT_OK_AND_ASSIGN(deployment_, LocalDeployment::Start(options));
  }
  // A session can be opened as soon as the first epoch is there; syctl knows.
  void WaitUntilServing() {
    const SteadyClock clock;
    const TimePoint end = clock.Now() + std::chrono::minutes(1);
    std::string output;
    const std::string plan =
        absl::StrCat(SY_BIN_DIR, "/syctl get plan --target ", deployment_->coordinator());
    while (RunCommand(plan, &output) != 0) ASSERT_LT(clock.Now(), end) << output;
  }

  std::unique_ptr<LocalDeployment> deployment_;
};

TEST_F(CApiTest, ServesACProgramAndAnswersMisuseWithErrors) {
  WaitUntilServing();
  std::string output;

  const int code = RunCommand(absl::StrCat(SY_C_PROGRAM, " ", deployment_->coordinator(), " ",
                                           deployment_->worker_address(0)),
                              &output);

  EXPECT_EQ(code, 0) << output;
  EXPECT_EQ(output, "passed\n");
}

TEST_F(CApiTest, ServesPython) {
  WaitUntilServing();
  std::string output;

  const int code = RunCommand(absl::StrCat(kPython, " ", SY_PYTHON_PROGRAM, " ", kLibrary, " ",
                                           deployment_->coordinator(), " ", SY_OTHER_LIBRARY),
                              &output);

  EXPECT_EQ(code, 0) << output;
  EXPECT_EQ(output, "passed\n");
}

TEST(CApiExportsTest, AreTheFunctionsOfTheHeaderAndNothingElse) {
  std::set<std::string> declared;
  const std::string headers =
      ReadBytes(SY_HEADER) + ReadBytes(SY_GRAPH_HEADER) + ReadBytes(SY_WORKER_HEADER);
  for (const absl::string_view line : absl::StrSplit(headers, '\n')) {
    const std::size_t name = line.find(" sy_");
    const std::size_t end = line.find('(');
    if (line.rfind("SY_EXPORT ", 0) != 0 || end == absl::string_view::npos) continue;
    const std::size_t begin = line.rfind(' ', end);
    std::string word(line.substr(begin + 1, end - begin - 1));
    while (!word.empty() && word[0] == '*') word.erase(0, 1);
    EXPECT_NE(name, absl::string_view::npos) << line;
    declared.insert(word);
  }

  std::string output;
  ASSERT_EQ(RunCommand(absl::StrCat("nm -D --defined-only --format=posix ", kLibrary), &output), 0)
      << output;
  std::set<std::string> exported;
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipEmpty())) {
    std::vector<std::string> columns = absl::StrSplit(line, ' ');
    std::string name = columns[0].substr(0, columns[0].find('@'));
    // The version itself is an absolute symbol.
    if (name != "SWITCHYARD_1") exported.insert(name);
  }

  EXPECT_EQ(declared.size(), 21U);
  EXPECT_EQ(exported, declared);
}

// R39, R46: the same answers as ModeOfStep, in C's words.
TEST(CApiModeTest, AutoIsNormalForPromptsAloneAndAFixedChoiceIsItself) {
  for (std::uint32_t flags = 0; flags < 8; ++flags) {
    EXPECT_EQ(sy_mode_of_step(SY_CHOICE_NORMAL, flags), SY_MODE_NORMAL) << flags;
    EXPECT_EQ(sy_mode_of_step(SY_CHOICE_LOW_LATENCY, flags), SY_MODE_LOW_LATENCY) << flags;
    EXPECT_EQ(sy_mode_of_step(SY_CHOICE_AUTO, flags),
              flags == SY_STEP_EXTEND ? SY_MODE_NORMAL : SY_MODE_LOW_LATENCY)
        << flags;
  }
}

TEST(CApiModeTest, AChoiceOrFlagThatThereIsNotHasNoAnswer) {
  EXPECT_EQ(sy_mode_of_step(SY_MODE_PLAN, 0), SY_MODE_PLAN);
  EXPECT_EQ(sy_mode_of_step(4, 0), SY_MODE_PLAN);
  EXPECT_EQ(sy_mode_of_step(SY_CHOICE_AUTO, 8), SY_MODE_PLAN);
}

TEST(HandlePoolTest, AHandleServesAgainOnlyAfterManyOthersHaveEnded) {
  struct Handle {
    int value = 0;
  };
  HandlePool<Handle> pool;
  Handle* const first = pool.Take();
  first->value = 7;
  pool.End(first);

  for (std::size_t i = 0; i < HandlePool<Handle>::kEndedKept; ++i) {
    Handle* const other = pool.Take();
    ASSERT_NE(other, first);
    pool.End(other);
  }
  EXPECT_EQ(first->value, 7);

  EXPECT_EQ(pool.Take(), first);
}

}  // namespace
}  // namespace switchyard
