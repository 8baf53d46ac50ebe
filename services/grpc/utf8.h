// Converts arbitrary bytes to a valid proto3 string. Such a field must be UTF-8; otherwise the peer
// refuses the whole message. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// Replaces each byte of `text` that is not part of a well-formed UTF-8 sequence by '?'. If `text`
// is longer than `bytes_max`, cuts it between two characters and ends it with "...". The result is
// never longer than `bytes_max`.
std::string CutUtf8(absl::string_view text, std::size_t bytes_max);

}  // namespace switchyard
