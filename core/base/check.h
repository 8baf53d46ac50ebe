// For invariants of our own: SY_CHECK(slot < slots_, "a slot of another ring").
//
// A failed check prints the condition, the text and the place to standard error and ends the
// process with abort(): what follows would compute with broken state. What comes from the network,
// a file, a caller's arguments or the environment is no invariant; it is refused with an
// absl::Status.
//
// A check costs one predicted branch, in every build. The text is evaluated only on failure. Any
// thread may call it, also with locks held.
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard {

// Prints "CHECK failed: `condition`: text (file:line)" and aborts.
[[noreturn]] void CheckFailed(absl::string_view condition, absl::string_view text,
                              absl::string_view file, int line);

}  // namespace switchyard

#define SY_CHECK(condition, text)                                        \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::switchyard::CheckFailed(#condition, (text), __FILE__, __LINE__); \
    }                                                                    \
  } while (false)

// Where control can never arrive, as after a switch over all values of an enum.
#define SY_UNREACHABLE(text) ::switchyard::CheckFailed("unreachable", (text), __FILE__, __LINE__)
