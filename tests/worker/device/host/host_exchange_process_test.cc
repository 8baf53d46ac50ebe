// Ranks that exchange rows between processes. The processes are host_exchange_rank, a program
// beside this one.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/line_process.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::LineProcess;
using ::testing::StartsWith;

constexpr int kForever = 1'000'000;

class HostExchangeProcessTest : public ::testing::Test {
 protected:
  // Ranks that have joined.
  void Start(int ranks, int steps, int patience_ms) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < ranks; ++rank) {
      processes_.push_back(std::make_unique<LineProcess>(
          "host_exchange_rank",
          std::vector<std::string>{absl::StrCat(rank), absl::StrCat(ranks), absl::StrCat(steps),
                                   absl::StrCat(patience_ms)}));
    }
    for (const auto& process : processes_) keys.push_back(process->Read());
    for (const auto& process : processes_) {
      for (const std::string& key : keys) process->Write(key);
    }
    for (const auto& process : processes_) ASSERT_EQ(process->Read(), "joined");
  }
  void Go() {
    for (const auto& process : processes_) process->Write("go");
    for (const auto& process : processes_) ASSERT_EQ(process->Read(), "running");
  }
  // All but `killed` say that it is lost, in time, and have no memory of the group left.
  void ExpectLost(std::size_t killed, int patience_ms) {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (rank == killed) continue;
      const std::string line = processes_[rank]->Read();
      EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", killed, ", step "))) << rank;
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
      ASSERT_EQ(words[0], "fault") << line;
      EXPECT_LE(std::atoi(words[1].c_str()), patience_ms + 100) << line;
      EXPECT_EQ(processes_[rank]->Read(), "0");
    }
  }
  std::vector<std::unique_ptr<LineProcess>> processes_;
};

TEST_F(HostExchangeProcessTest, ProcessesGetTheSumsOfTheirTokens) {
  Start(4, 300, 60'000);

  Go();

  for (const auto& process : processes_) {
    EXPECT_EQ(process->Read(), "ok");
    EXPECT_EQ(process->Read(), "0");
  }
}

TEST_F(HostExchangeProcessTest, AProcessThatIsKilledIsNamedByAllOthers) {
  for (const std::size_t killed : {0U, 1U, 2U}) {
    processes_.clear();
    Start(3, kForever, 500);
    Go();

    processes_[killed]->Kill();

    ExpectLost(killed, 500);
  }
}

// One that never begins is no different.
TEST_F(HostExchangeProcessTest, AProcessThatDoesNotBeginIsNamed) {
  Start(2, 10, 300);

  processes_[0]->Write("go");

  EXPECT_THAT(processes_[0]->Read(), HasSubstr("rank 1, step 0 of the group: it did not come"));
  EXPECT_EQ(processes_[0]->Read(), "0");
}

TEST_F(HostExchangeProcessTest, TheKeyOfAProcessThatHasEndedIsRefused) {
  LineProcess gone("host_exchange_rank", {"1", "2", "1", "100"});
  LineProcess here("host_exchange_rank", {"0", "2", "1", "100"});
  const std::string key = gone.Read();
  here.Write(here.Read());
  gone.Kill();

  here.Write(key);

  EXPECT_THAT(here.Read(),
              StartsWith("exchange: rank 1: the peer's shared memory is out of reach"));
}

}  // namespace
}  // namespace switchyard
