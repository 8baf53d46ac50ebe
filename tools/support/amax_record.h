// From what workers recorded to a calibration file: the largest magnitudes of all sessions, worker
// by worker, as one table.
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "model/checkpoint.h"
#include "model/quant/config/amax_file.h"

namespace switchyard::qwen3_moe {

// The model that hits must fit: MoE layers 0..layers-1 of `experts` each.
struct AmaxShape {
  std::size_t layers = 0;
  std::size_t experts = 0;
};

// Every layer and expert of the shape is in the table; 0: no row went there. Of several hits of one
// expert (sessions, attachments, replicas) the largest counts. Errors: kInternal (INTERNAL) naming
// layer and expert of a hit outside the shape; kFailedPrecondition (BAD_REQUEST) when no hit has a
// magnitude: nothing was fed, or nobody asked for them.
absl::StatusOr<AmaxTable> MergeAmax(const AmaxShape& shape,
                                    std::span<const AttachmentCounters::Hit> hits);

// A sentence for an operator when layers of `checkpoint` are quantized: calibration is for the
// weights that are still to be quantized, and what these experts make of their rows is not the
// same. "" when none is.
std::string QuantizedWarning(const Checkpoint& checkpoint);

}  // namespace switchyard::qwen3_moe
