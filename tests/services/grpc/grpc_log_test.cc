#include "services/grpc/grpc_log.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpc/support/log.h>

#include "services/grpc/line_limit.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What gRPC writes at `level` when it says one line of each severity.
std::string Written(LogFormat format, LogLevel level) {
  ::testing::internal::CaptureStderr();
  WriteGrpcLog(format, level);
  gpr_log(GPR_ERROR, "an error %d", 1);
  gpr_log(GPR_INFO, "some info %d", 2);
  gpr_log(GPR_DEBUG, "a detail %d", 3);
  std::string text = ::testing::internal::GetCapturedStderr();
  WriteGrpcLog(LogFormat::kText, LogLevel::kInfo);
  return text;
}

TEST(GrpcLogTest, LinesAreThoseOfTheLog) {
  const std::string text = Written(LogFormat::kText, LogLevel::kInfo);
  const std::string json = Written(LogFormat::kJson, LogLevel::kInfo);

  EXPECT_THAT(text, HasSubstr(" error grpc: an error 1 [file=grpc_log_test.cc line="));
  EXPECT_THAT(text, Not(HasSubstr("info")));
  EXPECT_THAT(json, HasSubstr("\"level\":\"error\",\"process\":\"grpc\",\"msg\":\"an error 1\","
                              "\"file\":\"grpc_log_test.cc\",\"line\":"));
}

// It would be an error line for each connection, and means nothing where ids decide.
TEST(GrpcLogTest, NamesOfHostsAreNotMissed) {
  ::testing::internal::CaptureStderr();
  WriteGrpcLog(LogFormat::kText, LogLevel::kInfo);
  gpr_log(GPR_ERROR, "No match found for server name: %s.", "127.0.0.1");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// As a flood of connections that are not TLS.
TEST(GrpcLogTest, AThousandErrorsOfOnePlaceAreAFewLines) {
  ::testing::internal::CaptureStderr();
  WriteGrpcLog(LogFormat::kText, LogLevel::kInfo);
  for (int i = 0; i < 1000; ++i) gpr_log(GPR_ERROR, "Handshake failed: %d", i);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("Handshake failed: 0"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 2 * LineLimit::kLinesInPeriod) << text;
}

TEST(GrpcLogTest, TheLevelDecidesWhatIsSaid) {
  const std::string debug = Written(LogFormat::kText, LogLevel::kDebug);

  EXPECT_THAT(debug, HasSubstr("error grpc: an error 1"));
  EXPECT_THAT(debug, HasSubstr("debug grpc: some info 2"));
  EXPECT_THAT(debug, HasSubstr("debug grpc: a detail 3"));
  EXPECT_EQ(Written(LogFormat::kText, LogLevel::kOff), "");
}

}  // namespace
}  // namespace switchyard
