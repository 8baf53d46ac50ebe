#include "worker/expert/attach_grant.h"

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeAttachRequest;
using testing::MakePlan;

EpochRuntime Runtime(GrantKeys keys) {
  EpochRuntime runtime;
  runtime.plan = MakePlan(1, 2);
  runtime.grant_keys = std::move(keys);
  return runtime;
}

AttachRequest Request() { return MakeAttachRequest(MakePlan(1, 2), DispatchMode::kNormal); }

TEST(AttachGrantTest, TakesWhatAKeyOfTheEpochHasSigned) {
  SY_EXPECT_OK(CheckGrant(Request(), Runtime({testing::TestGrantKey()}), "w1"));
  EXPECT_THAT(CheckGrant(Request(), Runtime({}), "w1"),
              FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
}

// What is refused is shown to strangers and written to logs.
TEST(AttachGrantTest, ARefusalNamesNoSecret) {
  AttachRequest forged = Request();
  forged.signature.bytes[7] ^= 1;
  const auto hex = [](const std::array<std::uint8_t, 32>& bytes) {
    return absl::BytesToHexString(std::string(bytes.begin(), bytes.end())).substr(0, 16);
  };

  const absl::Status status = CheckGrant(forged, Runtime({testing::TestGrantKey()}), "w1");

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnauthenticated, Reason::kBadGrant));
  const std::string text = status.ToString();
  EXPECT_TRUE(absl::StrContains(text, ToHex(forged.session))) << text;
  EXPECT_TRUE(absl::StrContains(text, "deployment demo")) << text;
  EXPECT_FALSE(absl::StrContains(text, absl::StrCat(forged.cookie.value))) << text;
  EXPECT_FALSE(absl::StrContains(text, absl::StrCat(absl::Hex(forged.cookie.value)))) << text;
  EXPECT_FALSE(absl::StrContains(text, hex(forged.signature.bytes))) << text;
  EXPECT_FALSE(absl::StrContains(text, hex(testing::TestGrantKey().bytes))) << text;
}

TEST(AttachGrantTest, AChunkHasAsManyRowsAsASourceSends) {
  const MoeShape shape{.hidden = 24, .intermediate = 10, .experts = 6, .top_k = 3};
  AttachRequest request = Request();

  request.max_tokens = 7;
  EXPECT_EQ(GrantedRowsMax(request, shape), 7U);
  request.max_tokens = 1;
  EXPECT_EQ(GrantedRowsMax(request, shape), 3U) << "a token's rows at least";
  request.mode = DispatchMode::kLowLatency;
  EXPECT_EQ(GrantedRowsMax(request, shape), 3U);
  request.max_tokens = 7;
  EXPECT_EQ(GrantedRowsMax(request, shape), 21U);
  request.max_tokens = -7;
  EXPECT_EQ(GrantedRowsMax(request, shape), 0U);
  request.max_tokens = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(GrantedRowsMax(request, shape), std::numeric_limits<std::uint32_t>::max());
}

}  // namespace
}  // namespace switchyard
