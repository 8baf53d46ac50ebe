#include "services/system/host_check.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(HostCheckTest, AddressesAndLoopbackNamesAreOwn) {
  for (const char* host : {"127.0.0.1:7701", "10.1.2.3", "[::1]:7701", "[fe80::1]", "localhost",
                           "LocalHost:80", "localhost.:80", "page.localhost"}) {
    EXPECT_TRUE(IsOwnHost(host, {})) << host;
  }
}

TEST(HostCheckTest, OtherNamesAreOwnOnlyIfTheyAreConfigured) {
  for (const char* host : {"evil.example", "evil.example:7701", "127.0.0.1.evil.example",
                           "localhost.evil.example", "xlocalhost", "", ":7701", "[", "[evil]:1"}) {
    EXPECT_FALSE(IsOwnHost(host, {"switchyard.internal", ""})) << host;
  }
  EXPECT_TRUE(IsOwnHost("switchyard.internal:7701", {"switchyard.internal"}));
  EXPECT_TRUE(IsOwnHost("Switchyard.Internal.", {"switchyard.internal"}));
}

}  // namespace
}  // namespace switchyard
