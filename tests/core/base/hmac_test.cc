#include "core/base/hmac.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

std::string Hex(const HmacBytes& bytes) {
  return absl::BytesToHexString(std::string(bytes.begin(), bytes.end()));
}

std::vector<std::uint8_t> Repeated(std::size_t count, std::uint8_t byte) {
  return std::vector<std::uint8_t>(count, byte);
}

// Test cases 1, 2, 3 and 6 of RFC 4231; the key of the last one is longer than a block.
TEST(HmacTest, IsThatOfTheStandard) {
  const std::string name = "Jefe";

  EXPECT_EQ(Hex(HmacSha256(Repeated(20, 0x0b), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256(std::vector<std::uint8_t>(name.begin(), name.end()),
                           "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(Repeated(20, 0xaa), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(Hex(HmacSha256(Repeated(131, 0xaa),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, ComparesEveryByte) {
  const HmacBytes one = HmacSha256(Repeated(32, 1), "text");
  EXPECT_TRUE(EqualInConstantTime(one, one));

  for (std::size_t i = 0; i < one.size(); ++i) {
    HmacBytes other = one;
    other[i] ^= 0x80;
    EXPECT_FALSE(EqualInConstantTime(one, other)) << i;
  }
}

}  // namespace
}  // namespace switchyard
