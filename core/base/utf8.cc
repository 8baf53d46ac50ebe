#include "core/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace switchyard {
namespace {

std::uint8_t ByteAt(absl::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

// Bytes of the sequence that starts at `at`; 0 when it is invalid.
std::size_t SequenceBytes(absl::string_view text, std::size_t at) {
  const std::uint8_t lead = ByteAt(text, at);
  if (lead < 0x80) return 1;
  std::size_t bytes = 0;
  // Only the second byte is needed to detect overlong forms, surrogates and values above U+10FFFF.
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    bytes = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    bytes = 3;
    if (lead == 0xe0) second_min = 0xa0;
    if (lead == 0xed) second_max = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    bytes = 4;
    if (lead == 0xf0) second_min = 0x90;
    if (lead == 0xf4) second_max = 0x8f;
  } else {
    return 0;
  }
  if (text.size() - at < bytes) return 0;
  const std::uint8_t second = ByteAt(text, at + 1);
  if (second < second_min || second > second_max) return 0;
  for (std::size_t i = 2; i < bytes; ++i) {
    if ((ByteAt(text, at + i) & 0xc0U) != 0x80U) return 0;
  }
  return bytes;
}

}  // namespace

std::string CutUtf8(absl::string_view text, std::size_t bytes_max) {
  constexpr absl::string_view kEllipsis = "...";
  const bool cut = text.size() > bytes_max;
  // Room for "..." is reserved only if the text is cut.
  const std::size_t tail = cut ? std::min(kEllipsis.size(), bytes_max) : 0;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceBytes(text, i);
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

std::size_t FindInvalidUtf8(absl::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Headers are ASCII except for rare names, so eight bytes are checked at a time.
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080U) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t bytes = SequenceBytes(text, at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

}  // namespace switchyard
