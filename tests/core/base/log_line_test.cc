#include "core/base/log_line.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(TextLineTest, AppendsTheFieldsThatTheTextDoesNotHave) {
  const LogFields fields{{"deployment", "local"}, {"epoch", 5}, {"workers", 2}};

  EXPECT_EQ(TextLine({"info", "coordinator", "deployment local: epoch 5 serves", fields}),
            "info  coordinator: deployment local: epoch 5 serves [workers=2]");
  EXPECT_EQ(TextLine({"warn", "worker w0", "no news", {}}), "warn  worker w0: no news");
}

TEST(TextLineTest, ATextOfAPeerBeginsNoLine) {
  EXPECT_EQ(TextLine({"info", "x", "a\nb\x1b[31m\t", {}}), "info  x: a\\x0ab\\x1b[31m\\x09");
}

TEST(JsonMembersTest, NumbersAreNumbersAndTextsAreQuoted) {
  const LogFields fields{{"epoch", 5}, {"session", "a\"b"}, {"rate", -3}};

  EXPECT_EQ(JsonMembers({"info", "worker w0", "it \"is\" C:\\x", fields}),
            R"("level":"info","process":"worker w0","msg":"it \"is\" C:\\x",)"
            R"("epoch":5,"session":"a\"b","rate":-3)");
}

TEST(JsonMembersTest, ControlCharactersAreEscaped) {
  const std::string text("a\n\t\0\x7f z", 7);

  EXPECT_EQ(JsonMembers({"info", "x", text, {}}),
            R"("level":"info","process":"x","msg":"a\u000a\u0009\u0000\u007f z")");
}

// JSON is UTF-8, and texts come from peers and files.
TEST(JsonMembersTest, WhatIsNotUtf8IsReplaced) {
  struct Case {
    std::string in;
    std::string out;
  };
  const std::string bad = "\xEF\xBF\xBD";
  for (const Case& each : {
           Case{"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
           Case{"\xFF", bad},
           Case{"\xC3", bad},                                // cut off
           Case{"\xC0\xAF", bad + bad},                      // overlong
           Case{"\xE0\x80\x80", bad + bad + bad},            // overlong
           Case{"\xED\xA0\x80", bad + bad + bad},            // a surrogate
           Case{"\xF4\x90\x80\x80", bad + bad + bad + bad},  // above U+10FFFF
           Case{"\x80z", bad + "z"},
       }) {
    EXPECT_EQ(JsonMembers({"info", "x", each.in, {}}),
              "\"level\":\"info\",\"process\":\"x\",\"msg\":\"" + each.out + "\"");
  }
}

}  // namespace
}  // namespace switchyard
