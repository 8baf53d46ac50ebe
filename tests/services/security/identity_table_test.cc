#include "services/security/identity_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "services/security/access.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(says({{"spiffe://d/a", {Role::kSource}, {"cpu"}}}),
              HasSubstr("spiffe://d/a has pools, but not the role worker"));
  EXPECT_THAT(says({{"spiffe://d/a", worker, {"cpu", "g pu"}}}), HasSubstr("has pool \"g pu\""));
  std::vector<Identity> many;
  for (std::size_t i = 0; i <= kIdentitiesMax; ++i) {
    many.push_back({absl::StrCat("spiffe://d/", i), worker});
  }
  EXPECT_THAT(says(many), HasSubstr("4097 rows"));
}

class TenantsOfTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto table = IdentityTable::Create({{"spiffe://d/a", {Role::kSource}},
                                        {"spiffe://d/b", {Role::kSource, Role::kObserver}},
                                        {"spiffe://d/w", {Role::kWorker}},
                                        {"spiffe://d/both", {Role::kSource, Role::kWorker}}});
    SY_ASSERT_OK(table.status());
    table_ = *std::move(table);
  }
  IdentityTable table_;
};

TEST_F(TenantsOfTableTest, AnIdHasOneTenantOrNone) {
  EXPECT_FALSE(table_.has_tenants());
  SY_ASSERT_OK(table_.AddTenants({{.name = "t", .ids = {"spiffe://d/a"}, .models = {"m"}},
                                  {.name = "u", .ids = {"spiffe://d/later"}}}));
  ASSERT_NE(table_.TenantOf("spiffe://d/a"), nullptr);
  EXPECT_TRUE(table_.TenantOf("spiffe://d/a")->MayUse("m"));
  EXPECT_FALSE(table_.TenantOf("spiffe://d/a")->MayUse("n"));
  EXPECT_TRUE(table_.TenantOf("spiffe://d/later")->MayUse("n")) << "no models named: all";
  for (const char* none : {"", "spiffe://d/b", "spiffe://d/A", "spiffe://d/a/x"}) {
    EXPECT_EQ(table_.TenantOf(none), nullptr) << none;
  }
}

TEST_F(TenantsOfTableTest, NamesThePlaceAndTheIdAndNeverATenant) {
  const auto says = [this](std::vector<Tenant> tenants) {
    IdentityTable table = table_;
    const absl::Status status = table.AddTenants(std::move(tenants));
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_FALSE(table.has_tenants());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("canary")));
    return std::string(status.message());
  };
  const std::vector<std::string> a{"spiffe://d/a"};
  EXPECT_THAT(says({}), HasSubstr("empty"));
  EXPECT_THAT(says({{.name = "canary one", .ids = a}}), HasSubstr("tenants[0].name: needs"));
  EXPECT_THAT(says({{.name = "", .ids = a}}), HasSubstr("tenants[0].name: needs"));
  EXPECT_THAT(says({{.name = "canary", .ids = a}, {.name = "canary", .ids = {"spiffe://d/b"}}}),
              HasSubstr("tenants[1].name: is that of tenants[0]"));
  EXPECT_THAT(says({{.name = "canary"}}), HasSubstr("tenants[0].ids: needs"));
  EXPECT_THAT(says({{.name = "canary", .ids = {"engine"}}}),
              HasSubstr("tenants[0].ids: \"engine\" is no SPIFFE id"));
  EXPECT_THAT(says({{.name = "canary", .ids = a}, {.name = "canary2", .ids = a}}),
              HasSubstr("tenants[1].ids: spiffe://d/a is there twice, first in tenants[0]"));
  EXPECT_THAT(says({{.name = "canary", .ids = {"spiffe://d/a", "spiffe://d/a"}}}),
              HasSubstr("twice"));
  EXPECT_THAT(says({{.name = "canary", .ids = a, .models = {"m", ""}}}),
              HasSubstr("tenants[0].models: one is no name"));
  std::vector<std::string> many;
  for (std::size_t i = 0; i <= kIdentitiesMax; ++i) many.push_back(absl::StrCat("spiffe://d/", i));
  EXPECT_THAT(says({{.name = "canary", .ids = many}}), HasSubstr("4097 ids"));
}

// What only the role source allows; a gateway's worker needs no tenant.
TEST_F(TenantsOfTableTest, ASourceOfNoTenantMayDoNothing) {
  constexpr char kOpen[] = "/switchyard.v1.CoordinatorService/OpenSession";
  constexpr char kForward[] = "/switchyard.v1.ExpertService/Forward";
  constexpr char kList[] = "/switchyard.v1.CoordinatorService/ListSessions";
  for (const char* id : {"spiffe://d/a", "spiffe://d/b", "spiffe://d/both"}) {
    SY_EXPECT_OK(CheckCall(table_, id, kForward));
  }
  SY_ASSERT_OK(table_.AddTenants({{.name = "canary", .ids = {"spiffe://d/a"}}}));

  SY_EXPECT_OK(CheckCall(table_, "spiffe://d/a", kOpen));
  SY_EXPECT_OK(CheckCall(table_, "spiffe://d/a", kForward));
  SY_EXPECT_OK(CheckCall(table_, "spiffe://d/w", kOpen));
  SY_EXPECT_OK(CheckCall(table_, "spiffe://d/b", kList)) << "as an observer";
  SY_EXPECT_OK(CheckCall(table_, "spiffe://d/both", kOpen)) << "as a worker";
  for (const absl::Status& denied :
       {CheckCall(table_, "spiffe://d/b", kOpen), CheckCall(table_, "spiffe://d/both", kForward)}) {
    EXPECT_THAT(denied, FailsWith(absl::StatusCode::kPermissionDenied, Reason::kTransport));
    EXPECT_THAT(std::string(denied.message()),
                AllOf(HasSubstr("is in none of them; add it"), Not(HasSubstr("canary"))));
  }
  EXPECT_THAT(CheckCall(table_, "spiffe://d/never", kOpen),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kTransport));
}

}  // namespace
}  // namespace switchyard
