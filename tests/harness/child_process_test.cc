#include "harness/child_process.h"

#include <filesystem>
#include <signal.h>
#include <sys/wait.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <stdlib.h>

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr Duration kLong = std::chrono::seconds(20);

class ChildProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "child-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  absl::StatusOr<ChildProcess> Shell(const std::string& script) {
    return ChildProcess::Spawn({"/bin/sh", "-c", script}, directory_ + "/log");
  }
  std::string directory_;
};

TEST_F(ChildProcessTest, FindsTheLineThatSaysReady) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess child,
                          Shell("echo noise; echo 'ready 127.0.0.1:5'; exec sleep 60"));

  SY_ASSERT_OK_AND_ASSIGN(const std::string address, child.WaitForLine("ready ", kLong));

  EXPECT_EQ(address, "127.0.0.1:5");
  EXPECT_TRUE(child.running());
}

TEST_F(ChildProcessTest, QuotesTheLogOfAProcessThatEndsTooEarly) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess child, Shell("echo 'port is taken' >&2; exit 3"));

  const auto line = child.WaitForLine("ready ", kLong);

  EXPECT_THAT(line, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(std::string(line.status().message()), ::testing::HasSubstr("port is taken"));
  SY_ASSERT_OK_AND_ASSIGN(const int status, child.Wait(kLong));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(ChildProcessTest, GivesUpAfterTheTimeout) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess child, Shell("exec sleep 60"));

  EXPECT_THAT(child.WaitForLine("ready ", std::chrono::milliseconds(20)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_EQ(child.Wait(std::chrono::milliseconds(5)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ChildProcessTest, EndsWithItsOwner) {
  pid_t pid = -1;
  {
    SY_ASSERT_OK_AND_ASSIGN(ChildProcess child, Shell("echo ready; exec sleep 60"));
    SY_ASSERT_OK(child.WaitForLine("ready", kLong));
    pid = child.pid();
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(ChildProcessTest, PassesSignalsOn) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess child,
                          Shell("trap 'exit 9' TERM; echo ready; while true; do sleep 0.01; done"));
  SY_ASSERT_OK(child.WaitForLine("ready", kLong));

  child.Signal(SIGTERM);

  SY_ASSERT_OK_AND_ASSIGN(const int status, child.Wait(kLong));
  EXPECT_EQ(WEXITSTATUS(status), 9);
}

TEST_F(ChildProcessTest, NamesAProgramThatIsNotThere) {
  EXPECT_THAT(ChildProcess::Spawn({"/no/such/program"}, directory_ + "/log"),
              FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
}

TEST_F(ChildProcessTest, OneThatSomebodyElseReapedHasEnded) {
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess child, Shell("echo ready; exec sleep 60"));
  SY_ASSERT_OK(child.WaitForLine("ready", kLong));
  child.Signal(SIGKILL);
  ASSERT_EQ(waitpid(child.pid(), nullptr, 0), child.pid());

  EXPECT_FALSE(child.running());
  SY_ASSERT_OK_AND_ASSIGN(const int status, child.Wait(kLong));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

}  // namespace
}  // namespace switchyard
