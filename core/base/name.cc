#include "core/base/name.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace switchyard {

bool IsName(absl::string_view text) {
  // No slash, blank or quote, so that a name can stand in a path, a label or a message as it is.
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                  c == '-';
         });
}

}  // namespace switchyard
