#include "examples/qwen3_moe/byte_tokenizer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

TEST(ByteTokenizerTest, EveryByteIsATokenAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));

  const std::vector<std::int32_t> ids = EncodeBytes(all);

  ASSERT_EQ(ids.size(), 256U);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<std::int32_t>(i));
  EXPECT_EQ(DecodeBytes(ids), all);
  EXPECT_THAT(EncodeBytes(""), ::testing::IsEmpty());
}

TEST(ByteTokenizerTest, EscapesWhatATerminalMustNotGet) {
  EXPECT_EQ(Printable("a b~\n\tc"), "a b~\n\tc");
  EXPECT_EQ(Printable(absl::string_view("\x1b[2J\0\x7f\xc3\xa9\r", 9)),
            "\\x1b[2J\\x00\\x7f\\xc3\\xa9\\x0d");
}

TEST(ByteTokenizerTest, RefusesAModelWhoseTokensAreNoBytes) {
  SY_EXPECT_OK(CheckByteVocabulary(256));
  EXPECT_THAT(CheckByteVocabulary(151936),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
