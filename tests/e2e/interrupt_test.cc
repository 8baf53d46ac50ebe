// Ctrl-C at any time: no process, directory, socket or shared memory is left.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "tests/e2e/processes.h"
#include "tests/testing/program.h"

namespace switchyard {
namespace {

using ::testing::IsEmpty;
using testing::Program;
using testing::ProgramResult;

constexpr Duration kEndMax = std::chrono::seconds(20);

// Processes that have a file in `folder` open or name it on their command line.
std::vector<std::string> ProcessesOf(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code gone;  // Processes come and go while one looks.
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string pid = process.path().filename().string();
    if (!std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    if (pid == std::to_string(getpid())) continue;
    std::ifstream file(process.path() / "cmdline");
    std::string all(std::istreambuf_iterator<char>(file), {});
    for (auto fd = std::filesystem::directory_iterator(process.path() / "fd", gone);
         !gone && fd != std::filesystem::directory_iterator(); fd.increment(gone)) {
      all += std::filesystem::read_symlink(fd->path(), gone).string();
    }
    if (all.find(folder) != std::string::npos) found.push_back(pid);
  }
  return found;
}

// Shared memory of UCX that no process is attached to: files and System V segments.
std::set<std::string> OrphanedSharedMemory() {
  std::set<std::string> orphans;
  std::string mapped;
  std::error_code gone;
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    std::ifstream maps(process.path() / "maps");
    mapped.append(std::istreambuf_iterator<char>(maps), {});
  }
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", gone)) {
    if (mapped.find(file.path().string()) == std::string::npos) orphans.insert(file.path());
  }
  std::ifstream segments("/proc/sysvipc/shm");
  std::string line;
  std::getline(segments, line);  // column names
  while (std::getline(segments, line)) {
    std::istringstream fields(line);
    std::vector<std::string> field{std::istream_iterator<std::string>(fields), {}};
    if (field.size() > 6 && field[6] == "0") orphans.insert("segment " + field[1]);
  }
  return orphans;
}

struct Case {
  const char* program;
  const char* transport;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.program << " over " << c.transport;
  }
};

class InterruptTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<std::string> Argv(const std::string& folder) {
    const std::string model = testing::kShippedModel;
    const std::string program = GetParam().program;
    std::vector<std::string> argv{"/usr/bin/env",
                                  "TMPDIR=" + folder,
                                  std::string(testing::kBinDir) + "/" + program,
                                  "--model",
                                  model,
                                  "--workers",
                                  "3",
                                  "--transport",
                                  GetParam().transport};
    if (program == "generate") {
      argv.insert(argv.end(), {"--prompt", "SQLite is ", "--tokens", "2000"});
    } else {
      argv.insert(argv.end(), {"--golden", model + "/golden.safetensors"});
    }
    return argv;
  }
};

TEST_P(InterruptTest, LeavesNothingBehindAtAnyTime) {
  SystemRng rng;
  const std::set<std::string> before = OrphanedSharedMemory();
  for (int round = 0; round < 4; ++round) {
    const testing::TempDir dir;
    const auto moment = std::chrono::milliseconds(rng.Below(900));
    SCOPED_TRACE(absl::StrCat("interrupted after ", moment / std::chrono::milliseconds(1), " ms"));
    SY_ASSERT_OK_AND_ASSIGN(Program program, Program::Start(Argv(dir.path())));

    // A moment like any other: whatever the program is doing then, unless it has ended already.
    program.process().Wait(moment).IgnoreError();
    program.process().Signal(SIGINT);

    SY_ASSERT_OK_AND_ASSIGN(const ProgramResult ran, program.Wait(kEndMax));
    EXPECT_TRUE(ran.code == 128 + SIGINT || ran.signal == SIGINT || ran.code == 0)
        << ran.code << " " << ran.signal << " " << ran.err;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    EXPECT_THAT(ProcessesOf(dir.path()), IsEmpty());
  }
  // What another program of this machine has made and not attached yet is gone in a moment.
  std::set<std::string> left;
  const TimePoint end = SteadyClock().Now() + std::chrono::seconds(5);
  do {
    left = OrphanedSharedMemory();
    for (const std::string& name : before) left.erase(name);
  } while (!left.empty() && SteadyClock().Now() < end);
  EXPECT_THAT(left, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Of, InterruptTest,
                         ::testing::Values(Case{"generate", "shm"}, Case{"generate", "gateway"},
                                           Case{"verify", "tcp"}, Case{"verify", "loopback"}),
                         [](const auto& param) {
                           return std::string(param.param.program) + "_" + param.param.transport;
                         });

}  // namespace
}  // namespace switchyard
