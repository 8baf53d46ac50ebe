#include "services/security/identity_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

TEST(SpiffeIdTest, HasADomainAndAPath) {
  EXPECT_EQ(ParseSpiffeId("spiffe://cluster.local/ns/moe/sa/prod-worker").domain, "cluster.local");
  EXPECT_EQ(ParseSpiffeId("spiffe://a_b-1/X.y").wrong, "");
  for (const char* bad :
       {"", "spiffe://", "spiffe://a", "spiffe://a/", "spiffe:///x", "https://a/x", "spiffe://A/x",
        "spiffe://a:1/x", "spiffe://u@a/x", "spiffe://a//x", "spiffe://a/x/", "spiffe://a/./x",
        "spiffe://a/../x", "spiffe://a/x?y", "spiffe://a/x#y", "spiffe://a/%41", "SPIFFE://a/x",
        " spiffe://a/x"}) {
    EXPECT_NE(ParseSpiffeId(bad).wrong, "") << bad;
    EXPECT_EQ(ParseSpiffeId(bad).domain, "") << bad;
  }
  EXPECT_NE(ParseSpiffeId(absl::StrCat("spiffe://a/", std::string(2048, 'x'))).wrong, "");
}

TEST(IdentityTableTest, FindsExactIdsOnly) {
  SY_ASSERT_OK_AND_ASSIGN(const IdentityTable table,
                          IdentityTable::Create({{"spiffe://d/a", {Role::kWorker, Role::kSource}},
                                                 {"spiffe://d/b", {Role::kOperator}}}));
  ASSERT_NE(table.Find("spiffe://d/a"), nullptr);
  EXPECT_EQ(table.Find("spiffe://d/a")->roles, (Roles{Role::kSource, Role::kWorker}));
  EXPECT_EQ(table.trust_domain(), "d");
  for (const char* other : {"", "spiffe://d/", "spiffe://d/A", "spiffe://d/a/b", "spiffe://e/a",
                            "spiffe://d/a ", "spiffe://d"}) {
    EXPECT_EQ(table.Find(other), nullptr) << other;
  }
}

TEST(IdentityTableTest, RefusesTablesThatMeanNothing) {
  const auto says = [](std::vector<Identity> rows) {
    const absl::Status status = IdentityTable::Create(std::move(rows)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    return std::string(status.message());
  };
  const Roles worker{Role::kWorker};
  EXPECT_THAT(says({}), HasSubstr("empty"));
  EXPECT_THAT(says({{"worker", worker}}), HasSubstr("\"worker\" is no SPIFFE id"));
  EXPECT_THAT(says({{"spiffe://d/a", {}}}), HasSubstr("spiffe://d/a has no role"));
  EXPECT_THAT(says({{"spiffe://d/a", worker}, {"spiffe://d/a", worker}}), HasSubstr("twice"));
  EXPECT_THAT(says({{"spiffe://d/a", worker}, {"spiffe://e/b", worker}}),
              HasSubstr("of trust domain e, others are of d"));
  std::vector<Identity> many;
  for (std::size_t i = 0; i <= kIdentitiesMax; ++i) {
    many.push_back({absl::StrCat("spiffe://d/", i), worker});
  }
  EXPECT_THAT(says(many), HasSubstr("4097 rows"));
}

}  // namespace
}  // namespace switchyard
