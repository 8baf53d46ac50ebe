#include "core/base/utf8.h"

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

// Encodes without regard to what is legal.
std::string Encode(std::uint32_t code, int bytes) {
  if (bytes == 1) return std::string(1, static_cast<char>(code));
  std::string out(static_cast<std::size_t>(bytes), '\0');
  for (int i = bytes - 1; i > 0; --i, code >>= 6U) {
    out[static_cast<std::size_t>(i)] = static_cast<char>(0x80U | (code & 0x3fU));
  }
  const std::uint32_t lead = bytes == 2 ? 0xc0U : bytes == 3 ? 0xe0U : 0xf0U;
  out[0] = static_cast<char>(lead | code);
  return out;
}

int ShortestBytes(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

TEST(Utf8Test, TakesEveryScalarValueAndNoSurrogate) {
  for (std::uint32_t code = 0; code <= 0x10ffff; ++code) {
    const std::string text = "a" + Encode(code, ShortestBytes(code)) + "b";
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    ASSERT_EQ(FindInvalidUtf8(text), surrogate ? 1 : text.size()) << code;
  }
}

TEST(Utf8Test, RefusesOverlongFormsAndWhatIsAboveUnicode) {
  for (const auto& [code, bytes] : {std::pair{0x00U, 2},
                                    {0x7fU, 2},
                                    {0x7fU, 3},
                                    {0x7ffU, 3},
                                    {0x7ffU, 4},
                                    {0xffffU, 4},
                                    {0x110000U, 4},
                                    {0x1fffffU, 4}}) {
    EXPECT_EQ(FindInvalidUtf8("xy" + Encode(code, bytes)), 2U) << code << " in " << bytes;
  }
}

TEST(Utf8Test, RefusesSequencesThatEndEarlyAndStrayBytes) {
  for (const std::uint32_t code : {0xe9U, 0x20acU, 0x1f600U}) {
    const std::string whole = Encode(code, ShortestBytes(code));
    for (std::size_t size = 1; size < whole.size(); ++size) {
      EXPECT_EQ(FindInvalidUtf8("x" + whole.substr(0, size)), 1U);
      EXPECT_EQ(FindInvalidUtf8(whole.substr(0, size) + "xyz"), 0U);
    }
  }
  // Wherever it stands in a text that is looked at in words.
  for (std::size_t at = 0; at < 40; ++at) {
    EXPECT_EQ(FindInvalidUtf8(std::string(at, 'x') + "\x80" + std::string(40 - at, 'x')), at);
  }
  EXPECT_EQ(FindInvalidUtf8("a\x80"), 1U);
  EXPECT_EQ(FindInvalidUtf8("\xff"), 0U);
  EXPECT_EQ(FindInvalidUtf8(""), 0U);
}

}  // namespace
}  // namespace switchyard
