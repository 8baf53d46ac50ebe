#include "core/base/failure_scope.h"

#include "gtest/gtest.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

TEST(FailureScopeTest, TravelsWithTheStatus) {
  for (const auto scope : {FailureScope::kRequest, FailureScope::kPeer, FailureScope::kCommunicator,
                           FailureScope::kWorker}) {
    const absl::Status status = WithScope(absl::UnavailableError("gone"), scope);

    EXPECT_EQ(ScopeOf(status), scope) << FailureScopeName(scope);
    EXPECT_EQ(ScopeOf(Annotate(status, "layer 3")), scope) << FailureScopeName(scope);
  }
}

TEST(FailureScopeTest, LeavesReasonAndOkAlone) {
  const absl::Status lost = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");

  EXPECT_EQ(ReasonOf(WithScope(lost, FailureScope::kPeer)), Reason::kWorkerLost);
  EXPECT_EQ(WithScope(absl::OkStatus(), FailureScope::kWorker), absl::OkStatus());
}

TEST(FailureScopeTest, IsTheRequestWhenNothingElseIsSaid) {
  EXPECT_EQ(ScopeOf(absl::InternalError("x")), FailureScope::kRequest);
  EXPECT_EQ(ScopeOf(absl::OkStatus()), FailureScope::kRequest);
}

}  // namespace
}  // namespace switchyard
