#include "services/bin/bin_support.h"

#include <csignal>
#include <cstdlib>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/cli/exit_code.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

// The output of `write`, which gets a log of the given settings.
std::string Written(const LogSettings& settings, const std::function<void(ProgramLog&)>& write) {
  ::testing::internal::CaptureStderr();
  ProgramLog log("test", settings, {});
  write(log);
  return ::testing::internal::GetCapturedStderr();
}

TEST(EndWithTest, SaysWhyAtAnyLevel) {
  const absl::Status taken = MakeError(absl::StatusCode::kUnavailable, Reason::kAddressInUse,
                                       "port 7700 is taken; choose another");
  int code = 0;

  const std::string text = Written({.level = "off", .format = "text"},
                                   [&](ProgramLog& log) { code = EndWith(taken, log.logger()); });

  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(text, HasSubstr("error test: port 7700 is taken; choose another "
                              "[code=UNAVAILABLE reason=ADDRESS_IN_USE]\n"));
}

TEST(EndWithTest, AConfigurationThatCannotWorkIsAMistakeOfUsage) {
  Logger logger("test", LogLevel::kOff);
  ::testing::internal::CaptureStderr();
  const int bad = EndWith(
      MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, "no such key"), &logger);
  const int missing =
      EndWith(MakeError(absl::StatusCode::kNotFound, Reason::kBadConfig, "cannot read"), &logger);
  ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(bad, kExitUsage);
  EXPECT_EQ(missing, kExitFailed);
  EXPECT_EQ(EndWith(absl::OkStatus(), &logger), kExitDone);
}

// A library writes what it was told to.
void WriteAsLibrary(LogFormat format, LogLevel level) {
  Logger("library", LogLevel::kDebug, format).Debug("level %s", LogLevelName(level));
}

TEST(ProgramLogTest, SignalsChangeTheLevelUntilOneEndsTheWait) {
  SignalWait signals({SIGTERM, SIGUSR1, SIGUSR2});
  ::testing::internal::CaptureStderr();
  {
    ProgramLog log("test", {.level = "warn", .format = "text"}, {&WriteAsLibrary});
    Logger& logger = *log.logger();
    kill(getpid(), SIGUSR1);
    std::thread wait([&] { log.WaitForEnd(&signals); });
    while (!logger.Enabled(LogLevel::kDebug)) std::this_thread::yield();
    logger.Debug("seen");
    kill(getpid(), SIGUSR2);
    while (logger.Enabled(LogLevel::kInfo)) std::this_thread::yield();
    logger.Info("not seen");
    SignalWait::Raise();
    wait.join();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_THAT(text, HasSubstr("the log's level is debug now"));
  EXPECT_THAT(text, HasSubstr(" test: seen\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("not seen")));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "library: level warn\n(.*\n)*.*library: level debug\n(.*\n)*.*library: "
                        "level warn\n"));
}

TEST(NetDevicesOfTest, NamesTheDeviceOfAnAddress) {
  EXPECT_EQ(NetDevicesOf("127.0.0.1"), "lo");
  EXPECT_EQ(NetDevicesOf("0.0.0.0"), "all");
  EXPECT_EQ(NetDevicesOf("192.0.2.1"), "all");
  EXPECT_EQ(NetDevicesOf("no-such-host.invalid"), "all");
}

TEST(RaiseFileLimitTest, RaisesTheSoftLimitToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);

  EXPECT_EQ(RaiseFileLimit(), before.rlim_max);

  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

// In a process of their own: signals belong to the whole process.
TEST(SignalWaitDeathTest, EndsWithASignalOrWithRaise) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [](bool raise) {
    SignalWait signals({SIGTERM, SIGINT});
    std::thread other([raise] {
      if (raise) {
        SignalWait::Raise();
      } else {
        kill(getpid(), SIGINT);
      }
    });
    signals.Wait();
    other.join();
    std::exit(7);
  };

  EXPECT_EXIT(wait(false), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(wait(true), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace switchyard
