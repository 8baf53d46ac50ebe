// A text through the decoder for what it does to the experts, with nothing predicted or generated:
// calibration.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"

namespace switchyard::qwen3_moe {

// Feeds all bytes of `text`, kEvalWindow of them at a time, each window in a context of its own;
// the last one holds what is left. Returns the windows. Cost: that of a prompt for each window.
// Errors: kInvalidArgument (BAD_REQUEST) for an empty text; kUnimplemented (UNSUPPORTED) for a
// model whose tokens are not bytes or that takes less than a window; those of Decoder::Forward.
absl::StatusOr<std::size_t> FeedText(const Decoder& decoder, const MoePath& moe,
                                     absl::string_view text);

}  // namespace switchyard::qwen3_moe
