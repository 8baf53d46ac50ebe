#include "services/config/security_files.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_authority.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr char kGood[] =
    "identities:\n"
    "- id: spiffe://d/coordinator\n"
    "  roles: [coordinator]\n"
    "- id: spiffe://d/both\n"
    "  roles: [source, observer]\n";

TEST(ReadIdentitiesTest, ReadsRolesByTheirNames) {
  const TempDir dir;
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable table,
                          ReadIdentities(dir.Write("identities.yaml", kGood)));
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.Find("spiffe://d/both")->roles, (Roles{Role::kSource, Role::kObserver}));
}

TEST(ReadIdentitiesTest, NamesLineAndNearestWord) {
  const TempDir dir;
  const auto says = [&dir](const std::string& text) {
    const absl::Status status = ReadIdentities(dir.Write("identities.yaml", text)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(says("identities:\n- id: spiffe://d/a\n  roles: [operater]\n"),
              AllOf(HasSubstr("identities.yaml:3"), HasSubstr("operator")));
  EXPECT_THAT(says("identities:\n- id: spiffe://d/a\n  role: [operator]\n"),
              AllOf(HasSubstr("identities.yaml:3"), HasSubstr("roles")));
  EXPECT_THAT(says("identities:\n- id: worker\n  roles: [worker]\n"),
              AllOf(HasSubstr("identities.yaml: "), HasSubstr("no SPIFFE id")));
  EXPECT_THAT(says("identities: []\n"), HasSubstr("empty"));
}

TEST(OpenSecurityTest, NeedsNoFolderOrAWholeOne) {
  SY_ASSERT_OK_AND_ASSIGN(const auto none, OpenSecurity("", nullptr));
  EXPECT_EQ(none, nullptr);
  const TempDir dir;
  testing::TestAuthority authority("a");
  authority.WriteFolder(dir.path(), {.uris = {"spiffe://d/both"}}, kGood);
  SY_ASSERT_OK_AND_ASSIGN(const auto security, OpenSecurity(dir.path(), nullptr));
  EXPECT_EQ(security->own().id, "spiffe://d/both");
  for (const char* file : {kCaFile, kCertificateFile, kKeyFile, kIdentitiesFile}) {
    const std::string moved = dir.Join("moved");
    ASSERT_EQ(std::rename(dir.Join(file).c_str(), moved.c_str()), 0);
    const absl::Status status = OpenSecurity(dir.path(), nullptr).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig)) << file;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    ASSERT_EQ(std::rename(moved.c_str(), dir.Join(file).c_str()), 0);
  }
}

}  // namespace
}  // namespace switchyard
