#include "services/grpc/utf8.h"

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

// An independent, slower statement of RFC 3629: decode, then compare with the shortest form.
bool IsUtf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xc0) || lead > 0xf7 || i + length > text.size()) return false;
    std::uint32_t point = length == 1 ? lead : lead & (0x7fU >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto byte = static_cast<unsigned char>(text[i + j]);
      if (byte < 0x80 || byte > 0xbf) return false;
      point = (point << 6) | (byte & 0x3fU);
    }
    const std::size_t shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    if (shortest != length || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    i += length;
  }
  return true;
}

TEST(Utf8Test, KeepsWellFormedText) {
  for (const char* text : {"", "plain", "caf\xc3\xa9", "\xe2\x82\xac 5", "\xf0\x9f\x98\x80",
                           "\xed\x9f\xbf\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(CutUtf8(text, 64), text);
  }
}

TEST(Utf8Test, ReplacesEachByteThatIsNotUtf8) {
  EXPECT_EQ(CutUtf8("a\xff"
                    "b",
                    64),
            "a?b");
  EXPECT_EQ(CutUtf8("\xc0\xaf", 64), "??");            // overlong
  EXPECT_EQ(CutUtf8("\xed\xa0\x80", 64), "???");       // surrogate
  EXPECT_EQ(CutUtf8("\xf4\x90\x80\x80", 64), "????");  // above U+10FFFF
  EXPECT_EQ(CutUtf8("x\xe2\x82", 64), "x??");          // ends early
}

TEST(Utf8Test, CutsBetweenCharactersAndSaysSo) {
  EXPECT_EQ(CutUtf8("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(CutUtf8("abcdefghi", 8), "abcde...");
  EXPECT_EQ(CutUtf8("abcd\xe2\x82\xac"
                    "efg",
                    8),
            "abcd...");
  EXPECT_EQ(CutUtf8("abcdefghi", 2), "..");
  EXPECT_EQ(CutUtf8("abc", 0), "");
}

TEST(Utf8Test, AnyBytesBecomeUtf8WithinTheBound) {
  const std::uint64_t seed = 20261121;
  SeededRng rng(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(rng.Below(24), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Below(4) == 0 ? rng.Below(128) : rng.Next());
    const std::size_t bound = rng.Below(24);

    const std::string out = CutUtf8(bytes, bound);

    ASSERT_LE(out.size(), bound) << "seed " << seed << " round " << round;
    ASSERT_TRUE(IsUtf8(out)) << "seed " << seed << " round " << round;
    if (IsUtf8(bytes) && bytes.size() <= bound) {
      ASSERT_EQ(out, bytes) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace switchyard
