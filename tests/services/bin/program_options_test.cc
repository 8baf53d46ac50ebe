#include "services/bin/program_options.h"

#include "gmock/gmock.h"
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

TEST(LogOptionsTest, RefuseAnUnknownLevelAndFormat) {
  LogSettings settings;
  OptionTable table;
  AddLogOptions(&settings, &table);

  EXPECT_EQ(table.Find("logging.level")->set({"loud"}),
            "\"loud\" is not one of debug, info, warn, error or off");
  EXPECT_NE(table.Find("logging.format")->set({"xml"}), "");
  EXPECT_EQ(table.Find("logging.format")->set({"json"}), "");
  EXPECT_EQ(settings.level, "info");
  EXPECT_EQ(settings.format, "json");
}

}  // namespace
}  // namespace switchyard
