#include "core/base/log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The output at `level` when one line of each level is written.
std::string WrittenAt(LogLevel level) {
  ::testing::internal::CaptureStderr();
  {
    Logger logger("worker w0", level);
    logger.Debug("debug %d", 1);
    logger.Info("info %d", 2);
    logger.Warn("warn %d", 3);
    logger.Error("error %s", "4");
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, WritesLinesOfTheLevelAndAbove) {
  EXPECT_THAT(WrittenAt(LogLevel::kWarn), AllOf(HasSubstr("warn 3"), HasSubstr("error 4"),
                                                Not(HasSubstr("info")), Not(HasSubstr("debug"))));
  EXPECT_THAT(WrittenAt(LogLevel::kDebug), AllOf(HasSubstr("debug 1"), HasSubstr("info 2"),
                                                 HasSubstr("warn 3"), HasSubstr("error 4")));
  EXPECT_EQ(WrittenAt(LogLevel::kOff), "");
}

TEST(LogTest, NamesTheProcessOnEachLine) {
  EXPECT_THAT(WrittenAt(LogLevel::kError), HasSubstr("worker w0"));
}

TEST(LogTest, TextIsNotAFormat) {
  ::testing::internal::CaptureStderr();

  Logger("x", LogLevel::kInfo).Write(LogLevel::kError, "100 % of {} and %s");

  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("100 % of {} and %s"));
}

TEST(LogTest, LevelNamesAreRead) {
  LogLevel level = LogLevel::kDebug;
  EXPECT_TRUE(LogLevelFromName("warn", &level));
  EXPECT_EQ(level, LogLevel::kWarn);
  EXPECT_TRUE(LogLevelFromName("off", &level));
  EXPECT_EQ(level, LogLevel::kOff);
  EXPECT_FALSE(LogLevelFromName("verbose", &level));
  EXPECT_EQ(level, LogLevel::kOff);
}

}  // namespace
}  // namespace switchyard
