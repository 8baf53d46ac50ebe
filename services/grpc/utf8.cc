#include "services/grpc/utf8.h"

#include <algorithm>
#include <cstdint>

namespace switchyard {
namespace {

std::uint8_t ByteAt(absl::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0;
}

bool IsContinuation(std::uint8_t byte) { return (byte & 0xc0U) == 0x80U; }

// Length of the well-formed sequence at `i` (RFC 3629: no overlong forms, no surrogates, nothing
// above U+10FFFF); 0 if there is none.
std::size_t SequenceAt(absl::string_view text, std::size_t i) {
  const std::uint8_t lead = ByteAt(text, i);
  if (lead < 0x80) return 1;
  const std::uint8_t second = ByteAt(text, i + 1);
  if (lead >= 0xc2 && lead <= 0xdf) return IsContinuation(second) ? 2 : 0;
  if (!IsContinuation(second) || !IsContinuation(ByteAt(text, i + 2))) return 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool overlong = lead == 0xe0 && second < 0xa0;
    const bool surrogate = lead == 0xed && second > 0x9f;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead < 0xf0 || lead > 0xf4 || !IsContinuation(ByteAt(text, i + 3))) return 0;
  const bool overlong = lead == 0xf0 && second < 0x90;
  const bool too_high = lead == 0xf4 && second > 0x8f;
  return overlong || too_high ? 0 : 4;
}

}  // namespace

std::string CutUtf8(absl::string_view text, std::size_t bytes_max) {
  constexpr absl::string_view kEllipsis = "...";
  const bool cut = text.size() > bytes_max;
  // Room for "..." is reserved only if the text is cut.
  const std::size_t tail = cut ? std::min(kEllipsis.size(), bytes_max) : 0;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceAt(text, i);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    // A character is taken whole or not at all.
    if (out.size() + taken > bytes_max - tail) break;
    if (length == 0) {
      out += '?';
    } else {
      out.append(text.data() + i, length);
    }
    i += taken;
  }
  out.append(kEllipsis.data(), tail);
  return out;
}

}  // namespace switchyard
