#include "core/base/suggest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace switchyard {
namespace {

// Options are spelled with '-' on command lines and with '_' in files, so both match.
std::string Plain(absl::string_view word) {
  std::string out;
  for (const char c : word) {
    out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// Optimal string alignment: Levenshtein with swaps of neighbors, because swapped letters are the
// most common typing error. Three rows suffice: a swap looks back two.
std::size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestWord(absl::string_view word, const std::vector<std::string>& known) {
  // Longer words are no misspelled names, and the cost is the product of the lengths.
  constexpr std::size_t kWordMax = 128;
  if (word.size() > kWordMax) return "";
  const std::string plain = Plain(word);
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : known) {
    const std::size_t distance = Distance(plain, Plain(candidate));
    // As many edits as letters would replace the whole candidate: that is no resemblance.
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string WordBegunBy(absl::string_view word, const std::vector<std::string>& known) {
  // One or two letters begin too many names to suggest one.
  constexpr std::size_t kWordMin = 3;
  const std::string plain = Plain(word);
  if (plain.size() < kWordMin) return "";
  const auto begun = std::find_if(known.begin(), known.end(), [&](const std::string& candidate) {
    return Plain(candidate).compare(0, plain.size(), plain) == 0;
  });
  return begun == known.end() ? "" : *begun;
}

}  // namespace switchyard
