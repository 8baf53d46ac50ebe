// Work of seconds to hours on a terminal: one line that is drawn again and again.
//
//   reading /models/b   45 % [#########           ] 1.2 of 1.7 GiB, 412.0 MiB/s, 2 s left
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/clock.h"

namespace switchyard {

struct ProgressFacts {
  std::string what;  // "reading /models/b"
  std::int64_t bytes_done = 0;
  std::int64_t bytes = 0;
  std::int64_t bytes_per_second = 0;  // 0: nothing moves, or not known so far
  std::optional<Duration> left;       // likewise
};

// The line without its end, in at most `width` characters; 0: no limit. A narrow one has less of
// `what`, and then no bar. Control characters of `what` are replaced. Pure.
std::string ProgressText(const ProgressFacts& facts, std::size_t width);

// Draws on a terminal. Whoever else writes to it clears the line first. Not thread-safe.
class ProgressLine {
 public:
  // Does not own the descriptor.
  explicit ProgressLine(int terminal) : terminal_(terminal) {}

  // True for a terminal that can erase a line. `term` is the variable TERM.
  static bool IsPossible(int descriptor, absl::string_view term);

  // Takes the place of the line before.
  void Draw(const ProgressFacts& facts);
  // Leaves an empty line, with the cursor at its beginning. Nothing if nothing is drawn.
  void Clear();

 private:
  const int terminal_;
  bool drawn_ = false;
};

// Erases what stands on a terminal's present line. For others that write there.
inline constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace switchyard
