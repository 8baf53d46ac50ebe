#include "core/cli/progress_line.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/amount_text.h"

namespace switchyard {
namespace {

constexpr std::size_t kBar = 20;
// A line that has no room for so much of what it is about has no bar.
constexpr std::size_t kWhatMin = 24;

std::int64_t PercentOf(const ProgressFacts& facts) {
  if (facts.bytes <= 0) return 0;
  const double share = static_cast<double>(facts.bytes_done) / static_cast<double>(facts.bytes);
  // Cut and not rounded: 100 means that everything is there.
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(share * 100), 0, 100);
}

std::string BarOf(std::int64_t percent) {
  const std::size_t full = kBar * static_cast<std::size_t>(percent) / 100;
  return absl::StrCat(" [", std::string(full, '#'), std::string(kBar - full, ' '), "]");
}

// A name may come from a file or a peer: it must not move the cursor.
std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return text;
}

// The beginning says what is done, and the end of a path more than its middle.
std::string CutTo(const std::string& text, std::size_t width) {
  constexpr absl::string_view kCut = "...";
  if (text.size() <= width) return text;
  if (width <= kCut.size()) return "";
  const std::size_t kept = width - kCut.size();
  const std::size_t head = kept * 2 / 3;
  return absl::StrCat(text.substr(0, head), kCut, text.substr(text.size() - (kept - head)));
}

std::size_t WidthOf(int terminal) {
  winsize size{};
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Whole or not at all is no concern: the next drawing mends it.
void WriteTo(int terminal, const std::string& text) {
  const ssize_t written = ::write(terminal, text.data(), text.size());
  static_cast<void>(written);
}

}  // namespace

std::string ProgressText(const ProgressFacts& facts, std::size_t width) {
  const std::int64_t percent = PercentOf(facts);
  std::vector<std::string> amounts{ShareText(facts.bytes_done, facts.bytes)};
  if (facts.bytes_per_second > 0) amounts.push_back(RateText(facts.bytes_per_second));
  if (facts.left) amounts.push_back(absl::StrCat(TimeText(*facts.left), " left"));
  const std::string what = Printable(facts.what);
  const auto line = [&](const std::string& bar) {
    const std::string after =
        absl::StrCat(absl::StrFormat(" %3d %%", percent), bar, " ", absl::StrJoin(amounts, ", "));
    const bool fits = width == 0 || what.size() + after.size() <= width;
    const std::size_t room = width > after.size() ? width - after.size() : 0;
    return std::pair(fits ? what.size() : room,
                     absl::StrCat(fits ? what : CutTo(what, room), after));
  };
  const auto [room, whole] = line(BarOf(percent));
  if (room >= std::min(what.size(), kWhatMin)) return whole;
  std::string narrow = line("").second;
  return width < narrow.size() ? narrow.substr(0, width) : narrow;
}

bool ProgressLine::IsPossible(int descriptor, absl::string_view term) {
  return isatty(descriptor) != 0 && !term.empty() && term != "dumb";
}

void ProgressLine::Draw(const ProgressFacts& facts) {
  const std::size_t columns = WidthOf(terminal_);
  // One less: a full line makes some terminals begin another one.
  const std::string text = ProgressText(facts, columns > 1 ? columns - 1 : columns);
  WriteTo(terminal_, absl::StrCat(kEraseLine, text));
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (drawn_) WriteTo(terminal_, kEraseLine);
  drawn_ = false;
}

}  // namespace switchyard
