// UTF-8 as RFC 3629 defines it: shortest forms, no surrogates, nothing above U+10FFFF. Proto3
// strings must be UTF-8; otherwise the peer refuses the whole message. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// Replaces each byte of `text` that is not part of a well-formed UTF-8 sequence by '?'. If `text`
// is longer than `bytes_max`, cuts it between two characters and ends it with "...". The result is
// never longer than `bytes_max`.
std::string CutUtf8(absl::string_view text, std::size_t bytes_max);

// The byte at which the first invalid sequence starts; text.size() when there is none. O(n).
std::size_t FindInvalidUtf8(absl::string_view text);

}  // namespace switchyard
