#include "ctl/contexts.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::TempDir;
using ::testing::HasSubstr;

TEST(ContextsTest, FileIsWhereTheBaseDirectorySpecificationHasIt) {
  EXPECT_EQ(ContextsPath("/c", "/h/a"), "/c/syctl.yaml");
  EXPECT_EQ(ContextsPath("", "/h/a"), "/h/a/.config/syctl.yaml");
  EXPECT_EQ(ContextsPath("relative", "/h/a"), "/h/a/.config/syctl.yaml");
  EXPECT_EQ(ContextsPath("", ""), "");
}

TEST(ContextsTest, ReadsWhatItWrote) {
  const TempDir dir;
  const std::string path = dir.Join("a/b/syctl.yaml");
  Contexts contexts;
  contexts.Set({"prod", "10.0.0.7:7700", "chat", "/etc/tls"});
  contexts.Set({"no: \"quotes\" #", "[::1]:7700", "", ""});
  contexts.Set({"prod", "", "code", ""});
  contexts.current = "prod";

  SY_ASSERT_OK(WriteContexts(path, contexts));
  SY_ASSERT_OK_AND_ASSIGN(const Contexts read, ReadContexts(path));

  EXPECT_EQ(read.current, "prod");
  ASSERT_EQ(read.all.size(), 2U);
  EXPECT_EQ(read.all[0].target, "10.0.0.7:7700");
  EXPECT_EQ(read.all[0].deployment, "code");
  EXPECT_EQ(read.all[0].tls_dir, "/etc/tls");
  EXPECT_EQ(read.all[1].tls_dir, "");
  EXPECT_EQ(read.all[1].name, "no: \"quotes\" #");
  EXPECT_EQ(read.all[1].target, "[::1]:7700");
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.Join("a/b")), {}), 1);
}

TEST(ContextsTest, NoFileAndAnEmptyOneHaveNone) {
  const TempDir dir;
  for (const std::string& path : {std::string(), dir.Join("none"), dir.Write("empty", "# a\n")}) {
    SY_ASSERT_OK_AND_ASSIGN(const Contexts contexts, ReadContexts(path));
    EXPECT_TRUE(contexts.all.empty());
    EXPECT_EQ(contexts.current, "");
  }
}

TEST(ContextsTest, SaysWhatIsWrongAndInWhichLine) {
  const TempDir dir;
  const std::vector<std::pair<std::string, std::string>> bad{
      {"contexts:\n  a:\n    tarket: h:1\n", ":3: tarket: no such key; did you mean \"target\"?"},
      {"contexts:\n  a:\n    deployment: d\n", ":2: a: has no target"},
      {"curent: a\n", ":1: curent: no such key"},
      {"current: a\n", "unknown context a; there are none"},
      {"contexts: [a]\n", "needs keys and values"},
      {"contexts:\n  a: {target: h:1}\n  a: {target: h:2}\n", ":3: a: is given twice"},
      {"contexts:\n  a: {target: [h]}\n", "needs a single value"},
      {"a: [\n", "syctl.yaml"}};
  for (const auto& [text, says] : bad) {
    const auto contexts = ReadContexts(dir.Write("syctl.yaml", text));
    EXPECT_EQ(ReasonOf(contexts.status()), Reason::kBadRequest) << text;
    EXPECT_THAT(std::string(contexts.status().message()), HasSubstr(says)) << text;
  }
}

TEST(ContextsTest, SaysWhereItCannotWrite) {
  const TempDir dir;
  const std::string path = dir.Write("file", "") + "/syctl.yaml";

  const absl::Status written = WriteContexts(path, {});

  EXPECT_EQ(written.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(written.message()), HasSubstr(path));
  EXPECT_FALSE(WriteContexts("", {}).ok());
}

}  // namespace
}  // namespace switchyard::ctl
