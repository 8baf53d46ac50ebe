// Matchers for Status and StatusOr. There is no "not ok" matcher: name the code that you expect.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"

namespace switchyard::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// EXPECT_THAT(call, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
MATCHER_P2(FailsWith, code, reason, "fails with the given code and reason") {
  *result_listener << StatusOf(arg).ToString() << " reason "
                   << std::string(ReasonName(ReasonOf(StatusOf(arg))));
  return StatusOf(arg).code() == code && ReasonOf(StatusOf(arg)) == reason;
}

}  // namespace switchyard::testing

#define SY_EXPECT_OK(expr) EXPECT_THAT((expr), ::switchyard::testing::IsOk())
#define SY_ASSERT_OK(expr) ASSERT_THAT((expr), ::switchyard::testing::IsOk())
#define SY_TEST_CONCAT_INNER_(a, b) a##b
#define SY_TEST_CONCAT_(a, b) SY_TEST_CONCAT_INNER_(a, b)
// SY_ASSERT_OK_AND_ASSIGN(auto value, MakeValue());
#define SY_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  SY_ASSERT_OK_AND_ASSIGN_IMPL_(SY_TEST_CONCAT_(sy_value_, __LINE__), lhs, expr)
#define SY_ASSERT_OK_AND_ASSIGN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                  \
  SY_ASSERT_OK(statusor);                                  \
  lhs = std::move(statusor).value()
