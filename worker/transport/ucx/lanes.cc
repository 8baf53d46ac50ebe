#include "worker/transport/ucx/lanes.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace switchyard {

// Example line: "#   lane[0]:  1:tcp/lo.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0 wireup".
std::string ParseLanes(absl::string_view text) {
  std::vector<absl::string_view> lanes;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::size_t at = line.find("lane[");
    if (at == absl::string_view::npos) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(at), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    absl::string_view name = words[1];  // "1:tcp/lo.0"
    const std::size_t colon = name.find(':');
    if (colon != absl::string_view::npos) name.remove_prefix(colon + 1);
    const std::size_t dot = name.rfind('.');
    if (dot != absl::string_view::npos) name = name.substr(0, dot);
    lanes.push_back(name);
  }
  return absl::StrJoin(lanes, ",");
}

std::string LanesOf(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t size = 0;
  // UCX prints to a FILE, so a memory stream collects the text.
  std::FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  std::string lanes = ParseLanes(absl::string_view(text, size));
  std::free(text);
  return lanes;
}

}  // namespace switchyard
