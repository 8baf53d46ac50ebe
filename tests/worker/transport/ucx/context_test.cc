#include "worker/transport/ucx/context.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<UcxContext>> InRange(PortRange ports) {
  return UcxContext::Create({.net_devices = "lo", .ports = ports});
}

// It takes one port for receiving and one for sending.
TEST(UcxContextTest, ListensInTheRangeAndSaysWhenThatIsFull) {
  constexpr PortRange kRange{28110, 28111};  // below those that the system gives away
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto first, InRange(kRange));
    for (const auto& at : {first->receiver_listeners(), first->sender_listeners()}) {
      ASSERT_EQ(at.size(), 1U);
      EXPECT_GE(at[0].port, kRange.first);
      EXPECT_LE(at[0].port, kRange.last);
      EXPECT_EQ(at[0].host, std::string("\x7f\0\0\1", 4));
    }

    // UCX by itself would look for one for ever.
    const auto second = InRange(kRange);
    EXPECT_THAT(second, FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
    EXPECT_THAT(second.status().message(), HasSubstr("from 28110 to 28111"));
    // Nor for a receiver that has to be replaced, on a thread that serves.
    EXPECT_THAT(first->ReplaceReceiver(
                    [](ucp_worker_h, std::span<const UcxListener>) { return absl::OkStatus(); }),
                FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
  }

  SY_EXPECT_OK(InRange(kRange));
}

// Former ones stay for their links, so they are bounded. The process cannot serve anybody new then,
// and says so in a way that ends it.
TEST(UcxContextTest, TheLossOfTheLastPortIsAFaultOfTheWorker) {
  SY_ASSERT_OK_AND_ASSIGN(const auto context, InRange({}));
  const auto any = [](ucp_worker_h, std::span<const UcxListener>) { return absl::OkStatus(); };
  for (std::size_t made = 1; made < UcxContext::kReceiversMax; ++made) {
    SY_ASSERT_OK(context->ReplaceReceiver(any));
  }

  const absl::Status none = context->ReplaceReceiver(any);

  EXPECT_THAT(none, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_EQ(ScopeOf(none), FailureScope::kWorker);
}

}  // namespace
}  // namespace switchyard
