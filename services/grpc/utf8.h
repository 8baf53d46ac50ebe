// Makes any bytes fit a proto3 string field, which must be UTF-8: a peer refuses the whole message
// otherwise. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// `text` with '?' for each byte that is not part of a well-formed UTF-8 sequence, and, when it is
// longer than `bytes_max`, cut between two characters and ending in "...". Never longer than
// `bytes_max`.
std::string CutUtf8(absl::string_view text, std::size_t bytes_max);

}  // namespace switchyard
