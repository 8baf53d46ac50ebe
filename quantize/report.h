// The output of switchyard-quantize: tables for people, JSON for programs. Pure; thread-safe.
//
// Sizes are in bytes, powers of ten. JSON is indented by two blanks for each level and ends with a
// newline.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "quantize/quantizer.h"

namespace switchyard::quantize {

std::string SchemesTable();
// [{"name", "scheme", "layout", "weight_bits", "calibration", "description"}]
std::string SchemesJson();

std::string SummaryTable(const QuantizeSummary& summary);
// {"scheme", "out", "layers": {"quantized", "bf16"}, "experts", "tensors", "bytes_before",
//  "bytes_after", "calc_diff_max": {"gate_proj", "up_proj", "down_proj"}, "files", "left_out",
//  "warnings"}
std::string SummaryJson(const QuantizeSummary& summary);

// Text, code, reason and metadata, a line each; as JSON {"error": {...}}.
std::string ErrorText(const absl::Status& status);
std::string ErrorJson(const absl::Status& status);

// "tensors 12/80  3.1 of 20.4 MB  85.0 MB/s  ETA 1 s", without a newline.
std::string ProgressLine(const QuantizeProgress& progress, Duration since_start);

// "14.1 MB".
std::string BytesText(std::uint64_t bytes);

}  // namespace switchyard::quantize
