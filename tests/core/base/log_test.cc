#include "core/base/log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// The output when `write` has a logger of this level and format.
std::string Written(LogLevel level, LogFormat format, const std::function<void(Logger&)>& write) {
  ::testing::internal::CaptureStderr();
  {
    Logger logger("worker w0", level, format);
    write(logger);
  }
  return ::testing::internal::GetCapturedStderr();
}

void WriteOneOfEach(Logger& logger) {
  logger.Debug("debug %d", 1);
  logger.Info("info %d", 2);
  logger.Warn("warn %d", 3);
  logger.Error("error %s", "4");
}

std::string WrittenAt(LogLevel level) { return Written(level, LogFormat::kText, &WriteOneOfEach); }

TEST(LogTest, WritesLinesOfTheLevelAndAbove) {
  EXPECT_THAT(WrittenAt(LogLevel::kWarn), AllOf(HasSubstr("warn 3"), HasSubstr("error 4"),
                                                Not(HasSubstr("info")), Not(HasSubstr("debug"))));
  EXPECT_THAT(WrittenAt(LogLevel::kDebug), AllOf(HasSubstr("debug 1"), HasSubstr("info 2"),
                                                 HasSubstr("warn 3"), HasSubstr("error 4")));
  EXPECT_EQ(WrittenAt(LogLevel::kOff), "");
}

TEST(LogTest, TheLevelCanBeChanged) {
  const std::string out = Written(LogLevel::kError, LogFormat::kText, [](Logger& logger) {
    WriteOneOfEach(logger);
    logger.SetLevel(LogLevel::kDebug);
    logger.Debug("now %d", 5);
    logger.SetLevel(LogLevel::kError);
    logger.Debug("then %d", 6);
  });

  EXPECT_THAT(out, AllOf(HasSubstr("error 4"), Not(HasSubstr("debug 1")), HasSubstr("now 5"),
                         Not(HasSubstr("then 6"))));
}

TEST(LogTest, LinesCanEraseWhatIsDrawn) {
  const std::string out = Written(LogLevel::kInfo, LogFormat::kText, [](Logger& logger) {
    logger.BeginLinesWith("\r\x1b[K");
    logger.Info("first");
    logger.Info("second");
  });

  EXPECT_THAT(out, MatchesRegex("\r\x1b\\[K20[^\r]*first\n\r\x1b\\[K20[^\r]*second\n"));
}

TEST(LogTest, TheLastLineIsWrittenAtAnyLevel) {
  const auto write = [](Logger& logger) { logger.WriteLast("the reason", {{"epoch", 3}}); };

  EXPECT_THAT(Written(LogLevel::kOff, LogFormat::kText, write),
              HasSubstr("error worker w0: the reason [epoch=3]\n"));
}

TEST(LogTest, ATextLineBeginsWithTimeAndOffset) {
  EXPECT_THAT(
      Written(LogLevel::kInfo, LogFormat::kText, [](Logger& logger) { logger.Info("hello"); }),
      MatchesRegex("20[0-9]{2}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\."
                   "[0-9]{3}[+-][0-9]{2}:[0-9]{2} info  worker w0: hello\n"));
}

TEST(LogTest, AJsonLineIsAnObject) {
  EXPECT_THAT(Written(LogLevel::kInfo, LogFormat::kJson,
                      [](Logger& logger) {
                        logger.Write(LogLevel::kWarn, "he\"llo", {{"epoch", 7}});
                      }),
              MatchesRegex("\\{\"ts\":\"20[0-9T:.-]+[+-][0-9]{2}:[0-9]{2}\",\"level\":\"warn\","
                           "\"process\":\"worker w0\",\"msg\":\"he\\\\\"llo\",\"epoch\":7\\}\n"));
}

// The output of a test is no terminal.
TEST(LogTest, AutoIsJsonWherePeopleDoNotRead) {
  Logger logger("x", LogLevel::kOff, LogFormat::kAuto);
  ::testing::internal::CaptureStderr();
  const Logger captured("x", LogLevel::kOff, LogFormat::kAuto);
  ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(captured.format(), LogFormat::kJson);
  EXPECT_NE(logger.format(), LogFormat::kAuto);
}

TEST(LogTest, TextIsNotAFormat) {
  EXPECT_THAT(Written(LogLevel::kInfo, LogFormat::kText,
                      [](Logger& logger) { logger.Write(LogLevel::kError, "100 % of {} and %s"); }),
              HasSubstr("100 % of {} and %s"));
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

TEST(LogTest, FormatNamesAreRead) {
  LogFormat format = LogFormat::kAuto;
  EXPECT_TRUE(LogFormatFromName("json", &format));
  EXPECT_EQ(format, LogFormat::kJson);
  EXPECT_FALSE(LogFormatFromName("xml", &format));
  EXPECT_EQ(format, LogFormat::kJson);
}

}  // namespace
}  // namespace switchyard
