#include "core/cli/progress_line.h"

#include <array>
#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <pty.h>

namespace switchyard {
namespace {

ProgressFacts HalfOf(const std::string& what) {
  return {.what = what,
          .bytes_done = std::int64_t{5} << 28,
          .bytes = std::int64_t{10} << 28,
          .bytes_per_second = 412 << 20,
          .left = std::chrono::seconds(3)};
}

TEST(ProgressTextTest, HasShareBarAmountsRateAndWhatIsLeft) {
  EXPECT_EQ(ProgressText(HalfOf("reading /m"), 0),
            "reading /m  50 % [##########          ] 1.2 of 2.5 GiB, 412.0 MiB/s, 3 s left");
  ProgressFacts facts = HalfOf("loading");
  facts.bytes_per_second = 0;
  facts.left = std::nullopt;
  facts.bytes_done = facts.bytes - 1;
  EXPECT_EQ(ProgressText(facts, 0), "loading  99 % [################### ] 2.4 of 2.5 GiB")
      << "not everything is there";
}

TEST(ProgressTextTest, ANarrowLineLosesTheMiddleOfWhatItIsAboutAndThenTheBar) {
  const ProgressFacts facts = HalfOf("reading /models/a/long/path/of/a/checkpoint");
  const std::string whole = ProgressText(facts, 0);
  EXPECT_EQ(ProgressText(facts, whole.size()), whole);
  for (std::size_t width = 1; width < whole.size(); ++width) {
    EXPECT_LE(ProgressText(facts, width).size(), width);
  }
  EXPECT_EQ(ProgressText(facts, 100),
            "reading /models/a/lo...checkpoint  50 % [##########          ] 1.2 of 2.5 GiB, "
            "412.0 MiB/s, 3 s left");
  EXPECT_EQ(ProgressText(facts, 60),
            "reading ...point  50 % 1.2 of 2.5 GiB, 412.0 MiB/s, 3 s left");
}

TEST(ProgressTextTest, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_THAT(ProgressText(HalfOf("reading /m\x1b[2J\n"), 0), ::testing::HasSubstr("/m?[2J? "));
}

class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(openpty(&screen_, &terminal_, nullptr, nullptr, &size), 0);
    ASSERT_EQ(fcntl(screen_, F_SETFL, O_NONBLOCK), 0);
  }
  void TearDown() override {
    ::close(screen_);
    ::close(terminal_);
  }
  // What was written since.
  std::string Shown() {
    std::array<char, 4096> bytes{};
    const ssize_t read = ::read(screen_, bytes.data(), bytes.size());
    return read > 0 ? std::string(bytes.data(), static_cast<std::size_t>(read)) : "";
  }
  int screen_ = -1;
  int terminal_ = -1;
};

TEST_F(TerminalTest, ALineIsDrawnInThePlaceOfTheOneBefore) {
  ProgressLine line(terminal_);
  line.Clear();
  EXPECT_EQ(Shown(), "") << "nothing to clear";

  line.Draw(HalfOf("reading /models/a/long/path/of/a/checkpoint"));
  const std::string first = Shown();
  EXPECT_EQ(first.rfind("\r\x1b[K", 0), 0U);
  EXPECT_EQ(first.find('\n'), std::string::npos);
  EXPECT_LE(first.size(), 4U + 59U) << "one line of the terminal";
  line.Clear();
  EXPECT_EQ(Shown(), "\r\x1b[K");
}

TEST_F(TerminalTest, OnlyATerminalThatCanErase) {
  EXPECT_TRUE(ProgressLine::IsPossible(terminal_, "xterm"));
  EXPECT_FALSE(ProgressLine::IsPossible(terminal_, "dumb"));
  EXPECT_FALSE(ProgressLine::IsPossible(terminal_, ""));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  EXPECT_FALSE(ProgressLine::IsPossible(pipe[1], "xterm"));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace switchyard
