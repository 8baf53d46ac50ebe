#include "services/bin/bin_support.h"

#include <cstdlib>
#include <sys/resource.h>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(ParseListenTest, ReadsHostAndPort) {
  SY_ASSERT_OK_AND_ASSIGN(const ListenAddress name, ParseListen("node-3:0"));
  SY_ASSERT_OK_AND_ASSIGN(const ListenAddress v6, ParseListen("[::1]:65535"));

  EXPECT_EQ(name.host, "node-3");
  EXPECT_EQ(name.port, 0);
  EXPECT_EQ(v6.host, "[::1]");
  EXPECT_EQ(v6.port, 65535);
}

TEST(ParseListenTest, RefusesAnythingElse) {
  for (const char* text : {"", "host", ":7700", "host:", "host:port", "host:-1", "host:65536"}) {
    EXPECT_THAT(ParseListen(text),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << text;
  }
}

TEST(MakeLoggerTest, RefusesAnUnknownLevel) {
  SY_EXPECT_OK(MakeLogger("test", "warn"));
  EXPECT_THAT(MakeLogger("test", "loud"),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(ExitCodeOfTest, SaysWhyOnStderr) {
  ::testing::internal::CaptureStderr();
  const int failed = ExitCodeOf(MakeError(absl::StatusCode::kUnavailable, Reason::kAddressInUse,
                                          "port 7700 is taken; choose another"));
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(failed, 1);
  EXPECT_EQ(text, "port 7700 is taken; choose another (UNAVAILABLE, ADDRESS_IN_USE)\n");
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
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
