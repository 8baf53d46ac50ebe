#include "examples/qwen3_moe/experts_call.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/format/bf16.h"

namespace switchyard::qwen3_moe {

absl::Status RunExperts(const ExpertsCall& call, const MoePath& path) {
  const std::size_t top_k = call.routing.top_k;
  const std::size_t tokens = call.routing.ids.size() / top_k;
  const std::size_t hidden = tokens == 0 ? 0 : call.x.size() / tokens;
  // The whole batch is rounded once; calls then only take spans of it.
  std::vector<Bf16> rounded(call.x.size());
  FloatsToBf16(call.x, rounded);
  for (std::size_t first = 0; first < tokens; first += path.max_tokens) {
    const std::size_t count = std::min(path.max_tokens, tokens - first);
    const absl::Status status =
        path.run({.layer = call.layer,
                  .tokens = count,
                  .top_k = top_k,
                  .x = std::span(rounded).subspan(first * hidden, count * hidden),
                  .ids = std::span(call.routing.ids).subspan(first * top_k, count * top_k),
                  .weights = std::span(call.routing.weights).subspan(first * top_k, count * top_k),
                  .y = call.y.subspan(first * hidden, count * hidden)});
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("MoE layer ", call.layer.value, ", rows ", first, " to ",
                                           first + count - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace switchyard::qwen3_moe
