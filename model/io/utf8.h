// UTF-8 as RFC 3629 defines it: shortest forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace switchyard {

// The byte at which the first invalid sequence starts; text.size() when there is none. O(n).
std::size_t FindInvalidUtf8(absl::string_view text);

}  // namespace switchyard
