// Feeds a text through the decoder only for its effect on the experts: calibration.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"

namespace switchyard::qwen3_moe {

// Feeds all bytes of `text` in windows of kEvalWindow bytes, each in a new context; the last window
// may be shorter. Returns the number of windows. Each one costs as much as a prompt of its length.
// Errors: kInvalidArgument (BAD_REQUEST) for an empty text; those of CheckEvalModel and
// Decoder::Forward.
absl::StatusOr<std::size_t> FeedText(const Decoder& decoder, const MoePath& moe,
                                     absl::string_view text);

}  // namespace switchyard::qwen3_moe
