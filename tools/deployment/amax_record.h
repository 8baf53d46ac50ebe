// Merges the magnitudes that workers recorded for all sessions into one table for a calibration
// file.
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

// The expected model: MoE layers 0..layers-1 with `experts` each.
struct AmaxShape {
  std::size_t layers = 0;
  std::size_t experts = 0;
};

// The table has every layer and expert of the shape; 0 means that no row went there. If an expert
// has several hits (sessions, attachments, replicas), the largest magnitude wins. Errors: kInternal
// (INTERNAL) for a hit outside the shape, with layer and expert; kFailedPrecondition (BAD_REQUEST)
// if no hit has a magnitude, because nothing was fed or the sessions did not record.
absl::StatusOr<AmaxTable> MergeAmax(const AmaxShape& shape,
                                    std::span<const AttachmentCounters::Hit> hits);

// A warning if layers of `checkpoint` are already quantized; otherwise "". Calibration needs the
// magnitudes of the original weights, and quantized experts produce different ones.
std::string QuantizedWarning(const Checkpoint& checkpoint);

}  // namespace switchyard::qwen3_moe
