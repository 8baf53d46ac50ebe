// "Did you mean": the nearest of the known words to a misspelled one. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

// The word of `known` with the fewest edits (insert, delete, replace, swap of neighbors) from
// `word`, when they are at most a third of its length, or 2; the first of equals. "" when none is
// near. Upper and lower case count as equal, and so do '-' and '_'.
// O(known * letters^2): for error texts only.
std::string NearestWord(absl::string_view word, const std::vector<std::string>& known);

// The first word of `known` that begins with `word`, for names that are cut short ("fp8" of
// "fp8_block"). "" when there is none or `word` has fewer than 3 letters. Letters compare as above.
std::string WordBegunBy(absl::string_view word, const std::vector<std::string>& known);

}  // namespace switchyard
