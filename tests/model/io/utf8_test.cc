#include "model/io/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

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
