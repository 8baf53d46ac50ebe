// Error frames at the source: reading one, and making the caller's status from it. Pure.
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

// Copies the body out of the ring, then checks the copy against the header's CRC. Otherwise than
// with kNone the frame must be dropped, and `out` holds nothing.
FrameDrop ReadErrorFrame(const HeaderBytes& raw, std::span<const std::byte> payload,
                         ErrorBody* out);

// The worker's error as the caller gets it: its code and reason, with worker, layer and, where it
// names a row of the chunk, that row's token.
absl::Status StatusOfError(const ErrorBody& body, const Step& step, std::uint32_t chunk);

// kUnavailable with `reason`, and worker, layer, step and epoch as metadata. `what` continues the
// sentence that begins with them.
absl::Status WorkerError(Reason reason, const Step& step, const Attachment& attachment,
                         absl::string_view what);

}  // namespace switchyard
