// A checkpoint that takes seconds to read and to load, for whoever sits at a terminal: one line
// that is drawn again and again. On a pipe there is nothing of it. What it says is what was done.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/terminal_program.h"

namespace switchyard {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TerminalProgram;

constexpr Duration kChangeMax = std::chrono::seconds(120);
constexpr char kSmall[] = "synthetic:seed=1,hidden=64,intermediate=32,experts=8,top_k=2,layers=1";

// 64 experts of 24 MiB: seconds to hash, and seconds to load.
std::string Large(int seed) {
  return absl::StrCat("synthetic:seed=", seed,
                      ",hidden=2048,intermediate=2048,experts=32,top_k=2,layers=2");
}

class TerminalProgressTest : public testing::Processes {
 protected:
  std::string Write(const std::string& name, const std::string& checkpoint) {
    return folder_.Write(name + ".yaml", absl::StrCat("name: ", name, "\ncheckpoint: \"",
                                                      checkpoint, "\"\nmin_workers: 1\n"));
  }
  static std::string Bin(const std::string& program) {
    return absl::StrCat(testing::kBinDir, "/", program);
  }
  std::vector<std::string> Syctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {Bin("syctl"), "--target", deployment_->coordinator()});
    return words;
  }

  const testing::TempDir folder_;
};

// The number before " %".
int PercentOf(const std::string& line) {
  const std::size_t end = line.find(" % ");
  int percent = -1;
  EXPECT_TRUE(absl::SimpleAtoi(line.substr(end - 3, 3), &percent)) << line;
  return percent;
}

// Lines of one thing each grow, fit the terminal, and there are several. Returns how many.
int ExpectGrows(const std::vector<std::string>& drawn, const std::string& what) {
  std::vector<std::string> lines;
  std::copy_if(drawn.begin(), drawn.end(), std::back_inserter(lines),
               [&](const std::string& line) { return absl::StrContains(line, what); });
  int last = 0;
  for (const std::string& line : lines) {
    EXPECT_LT(line.size(), TerminalProgram::kColumns) << line;
    EXPECT_GE(PercentOf(line), last) << line;
    last = PercentOf(line);
  }
  return static_cast<int>(lines.size());
}

TEST_F(TerminalProgressTest, AWaitDrawsOneLineAndAPipeGetsNone) {
  LocalDeploymentOptions options;
  options.checkpoint = kSmall;
  options.worker_flags = {"--load-threads", "1"};
  Deploy(2, std::move(options));
  ASSERT_NE(deployment_, nullptr);

  TerminalProgram apply(Syctl({"apply", "-f", Write("first", Large(2)), "--wait"}));
  ASSERT_TRUE(apply.ReadToEnd(kChangeMax));

  EXPECT_EQ(apply.code(), 0) << apply.written();
  const auto drawn = apply.Drawn();
  EXPECT_GE(ExpectGrows(drawn, "first: reading"), 2) << apply.written();
  EXPECT_GE(ExpectGrows(drawn, "first: loading on "), 2) << apply.written();
  EXPECT_THAT(drawn, Contains(HasSubstr("[##")));
  EXPECT_THAT(drawn, Contains(HasSubstr("iB/s, ")));
  EXPECT_THAT(drawn, Contains(HasSubstr(" left")));
  EXPECT_THAT(apply.Lines(), Each(Not(HasSubstr(" % "))));
  EXPECT_THAT(apply.Lines(), Contains(HasSubstr("serving epoch")));
  EXPECT_LE(apply.Lines().size(), 10U) << "few lines are told";

  const testing::ProgramResult piped =
      testing::RunProgram(Syctl({"apply", "-f", Write("second", Large(3)), "--wait"}), kChangeMax);
  EXPECT_EQ(piped.code, 0) << piped.err;
  for (const std::string& text : {piped.out, piped.err}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr(" % ")));
  }
}

TEST_F(TerminalProgressTest, TheProgramsDrawWhatTheyReadAndLoad) {
  TerminalProgram coordinator({Bin("switchyard-coordinator"), "--listen", "127.0.0.1:0", "--store",
                               "memory", "--deployment", Write("local", Large(2))});
  const auto is_ready = [](const std::string& written) {
    return absl::StrContains(written, "ready 127.0.0.1:");
  };
  ASSERT_TRUE(coordinator.ReadUntil(is_ready, kChangeMax)) << coordinator.written();
  const std::size_t at = coordinator.written().find("ready 127.0.0.1:") + 6;
  const std::string address =
      coordinator.written().substr(at, coordinator.written().find_first_of("\r\n", at) - at);

  TerminalProgram worker({Bin("switchyard-worker"), "--id", "w0", "--coordinator", address,
                          "--net-devices", "lo", "--load-threads", "1"});
  std::thread looks([&] { EXPECT_TRUE(worker.ReadToEnd(kChangeMax)); });
  EXPECT_TRUE(coordinator.ReadUntil(
      [](const std::string& written) { return absl::StrContains(written, "serves on 1 worker"); },
      kChangeMax))
      << coordinator.written();
  worker.Signal(SIGTERM);
  looks.join();
  coordinator.Signal(SIGTERM);
  EXPECT_TRUE(coordinator.ReadToEnd(kChangeMax));

  EXPECT_EQ(worker.code(), 0);
  EXPECT_EQ(coordinator.code(), 0);
  EXPECT_GE(ExpectGrows(coordinator.Drawn(), "reading syn"), 2) << coordinator.written();
  EXPECT_GE(ExpectGrows(coordinator.Drawn(), "1 worker loading"), 2) << coordinator.written();
  EXPECT_GE(ExpectGrows(worker.Drawn(), "loading epoch 1 of local"), 2) << worker.written();
  for (const TerminalProgram* program : {&coordinator, &worker}) {
    EXPECT_THAT(program->Lines(), Each(Not(HasSubstr(" % ")))) << program->written();
  }
}

}  // namespace
}  // namespace switchyard
