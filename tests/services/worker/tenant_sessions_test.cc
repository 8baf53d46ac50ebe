#include "services/worker/tenant_sessions.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(TenantSessionsTest, ATenantGetsHalfOfThemAndAtLeastOne) {
  const Tenant red{.name = "red"};
  EXPECT_EQ(TenantSessions(16).Of(&red)->most(), 8U);
  EXPECT_EQ(TenantSessions(3).Of(&red)->most(), 1U);
  EXPECT_EQ(TenantSessions(1).Of(&red)->most(), 1U);
  EXPECT_EQ(TenantSessions(16).Of(nullptr), nullptr);
}

TEST(TenantSessionsTest, CallersOfATenantShareThem) {
  TenantSessions sessions(4);
  const Tenant red{.name = "red"};
  const Tenant blue{.name = "blue"};
  const auto one = sessions.Of(&red);
  const auto two = sessions.Of(&red);
  EXPECT_TRUE(one->Take());
  EXPECT_TRUE(two->Take());

  EXPECT_FALSE(one->Take());
  EXPECT_TRUE(sessions.Of(&blue)->Take());
  two->Leave();
  EXPECT_TRUE(one->Take());
}

}  // namespace
}  // namespace switchyard
