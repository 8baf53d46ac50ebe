#include "coordinator/members/register_check.h"

#include <string>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/grant_signature.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(RegisterCheckTest, RefusesBadRegistersByField) {
  struct Case {
    const char* field;
    void (*spoil)(Register&);
  };
  const Case cases[] = {
      {"incarnation", [](Register& r) { r.incarnation = {}; }},
      {"endpoint", [](Register& r) { r.endpoint = ""; }},
      {"capabilities.device_profile", [](Register& r) { r.capabilities.device_profile = "tpu"; }},
      {"capabilities.device_profile",
       [](Register& r) { r.capabilities.device_profile = "deepep_v1"; }},
      {"pool", [](Register& r) { r.pool = "a pool"; }},
      {"release", [](Register& r) { r.release = "0.1.0\n"; }},
      {"resident", [](Register& r) { r.resident.resize(1000); }},
      {"resident",
       [](Register& r) {
         r.resident.push_back({"d", Epoch{~0ULL}, {}, true});
       }},
      {"grant_keys", [](Register& r) { r.grant_keys.resize(1000); }},
      {"grant_keys",
       [](Register& r) {
         r.grant_keys.push_back({"d", GrantKeys(kGrantKeysMax + 1)});
       }},
  };
  for (const Case& c : cases) {
    Register request{"w9", {1, 1}, "w9:1", testing::MakeCapabilities(), {}};
    SY_ASSERT_OK(CheckRegister(request));
    c.spoil(request);
    const absl::Status status = CheckRegister(request);
    ASSERT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    EXPECT_EQ(MetadataOf(status).at("field"), c.field);
  }
}

TEST(RegisterCheckTest, SaysWhatWasSentInOneShortLine) {
  Register request{std::string(100'000, '\n'), {1, 1}, "", testing::MakeCapabilities(), {}};

  const absl::Status status = CheckRegister(request);

  EXPECT_LT(status.message().size(), 1000U);
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

}  // namespace
}  // namespace switchyard
