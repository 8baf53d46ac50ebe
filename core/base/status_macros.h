// Early return on a failed Status, without adding to it (use Annotate once per border).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The status is returned unchanged: a text that grows at every level hides what failed.
#define SY_RETURN_IF_ERROR(expr)                              \
  do {                                                        \
    if (absl::Status sy_status_ = (expr); !sy_status_.ok()) { \
      return sy_status_;                                      \
    }                                                         \
  } while (false)

// Two steps, so that __LINE__ is expanded before it is pasted: a function may assign several times.
#define SY_CONCAT_INNER_(a, b) a##b
#define SY_CONCAT_(a, b) SY_CONCAT_INNER_(a, b)

// SY_ASSIGN_OR_RETURN(auto x, MakeX()); a type with a comma in `lhs` would end the macro's
// argument: name the type first.
#define SY_ASSIGN_OR_RETURN(lhs, expr) \
  SY_ASSIGN_OR_RETURN_IMPL_(SY_CONCAT_(sy_statusor_, __LINE__), lhs, expr)
#define SY_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                              \
  if (!statusor.ok()) return statusor.status();        \
  lhs = std::move(statusor).value()
