#include "examples/qwen3_moe/feed_text.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "examples/qwen3_moe/byte_tokenizer.h"
#include "examples/qwen3_moe/eval.h"

namespace switchyard::qwen3_moe {

absl::StatusOr<std::size_t> FeedText(const Decoder& decoder, const MoePath& moe,
                                     absl::string_view text) {
  SY_RETURN_IF_ERROR(CheckEvalModel(decoder.dims()));
  if (text.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "the text is empty; at least one byte is required");
  }
  const std::vector<std::int32_t> ids = EncodeBytes(text);
  KvCache cache = decoder.MakeCache(kEvalWindow);
  std::size_t windows = 0;
  for (std::size_t first = 0; first < ids.size(); first += kEvalWindow) {
    const std::size_t count = std::min(kEvalWindow, ids.size() - first);
    // A new context for each window, as in eval, so that the text may have any length.
    cache.Clear();
    // Only the last logits, because the whole matrix would be computed and dropped.
    const auto logits = decoder.Forward(
        cache, {.tokens = std::span(ids).subspan(first, count), .logits = LogitsOf::kLast}, moe);
    if (!logits.ok()) return logits.status();
    ++windows;
  }
  return windows;
}

}  // namespace switchyard::qwen3_moe
