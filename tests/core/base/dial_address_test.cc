#include "core/base/dial_address.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(DialAddressTest, TakesWhatPeersCanDial) {
  for (const char* const good : {"10.0.0.7:7000", "w0.experts.svc:1", "localhost:65535", "[::1]:80",
                                 "[fe80::1%eth0]:80", "my_host:7000"}) {
    EXPECT_EQ(WhyNotDialable(good), "") << good;
  }
}

TEST(DialAddressTest, RefusesWildcards) {
  for (const char* const any : {"0.0.0.0:7000", "[::]:7000", "0:7000", "*:7000", "[0:0::0]:1"}) {
    EXPECT_NE(WhyNotDialable(any).find("wildcard"), std::string::npos) << any;
  }
}

TEST(DialAddressTest, RefusesWhatIsNoAddress) {
  const std::string long_host(256, 'a');
  for (const std::string& bad :
       {std::string(), std::string("host"), std::string(":7000"), std::string("host:"),
        std::string("host:0"), std::string("host:65536"), std::string("host:-1"),
        std::string("host:7000x"), std::string("::1:7000"), std::string("a b:7000"),
        std::string("http://host:7000"), std::string("ho\nst:7000"), std::string("[]:7000"),
        std::string("ho\0st:7000", 10), long_host + ":7000"}) {
    EXPECT_NE(WhyNotDialable(bad), "") << bad;
  }
}

}  // namespace
}  // namespace switchyard
