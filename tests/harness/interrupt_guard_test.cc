// In processes of their own: signals belong to the whole process.
#include "harness/interrupt_guard.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

class InterruptGuardDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Waits for the signal's work to be done; the guard ends the process.
  [[noreturn]] static void SignalSelf(int signal) {
    kill(getpid(), signal);
    while (true) pause();
  }
};

TEST_F(InterruptGuardDeathTest, CleansUpOnceAndEndsAsShellsExpect) {
  const auto interrupted = [](int signal) {
    InterruptGuard guard;
    guard.OnSignal([] { std::fputs("cleaned up\n", stderr); });
    SignalSelf(signal);
  };

  EXPECT_EXIT(interrupted(SIGINT), ::testing::ExitedWithCode(128 + SIGINT), "^cleaned up\n$");
  EXPECT_EXIT(interrupted(SIGTERM), ::testing::ExitedWithCode(128 + SIGTERM), "^cleaned up\n$");
}

TEST_F(InterruptGuardDeathTest, EndsTheProcessBeforeThereIsAnythingToCleanUp) {
  const auto interrupted = [] {
    const InterruptGuard guard;
    SignalSelf(SIGINT);
  };

  EXPECT_EXIT(interrupted(), ::testing::ExitedWithCode(128 + SIGINT), "^$");
}

TEST_F(InterruptGuardDeathTest, SignalsDoWhatTheyDidBeforeOnceItIsGone) {
  const auto interrupted = [] {
    { const InterruptGuard guard; }
    SignalSelf(SIGINT);
  };

  EXPECT_EXIT(interrupted(), ::testing::KilledBySignal(SIGINT), "");
}

TEST_F(InterruptGuardDeathTest, EndsQuietlyWithoutASignal) {
  const auto ordinary = [] {
    {
      InterruptGuard guard;
      guard.OnSignal([] { std::fputs("cleaned up\n", stderr); });
    }
    std::exit(0);
  };

  EXPECT_EXIT(ordinary(), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace switchyard
