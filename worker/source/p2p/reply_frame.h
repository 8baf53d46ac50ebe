// Reads error frames at the source.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/error.h"
#include "worker/source/p2p/attachment.h"
#include "worker/source/p2p/step.h"
#include "worker/transport/frame.h"

namespace switchyard {

// Copies the body out of the ring, then checks the copy against the header's CRC.
FrameDrop ReadErrorFrame(const HeaderBytes& raw, std::span<const std::byte> payload,
                         ErrorBody* out);

// The worker's refusal as the caller sees it: its code and reason, with worker, layer and, for a
// row of the batch, the row's token.
absl::Status StatusOfError(const ErrorBody& body, const Step& step, std::uint32_t chunk);

// kUnavailable with worker, layer, step and epoch as metadata.
absl::Status WorkerError(Reason reason, const Step& step, const Attachment& attachment,
                         absl::string_view what);

}  // namespace switchyard
