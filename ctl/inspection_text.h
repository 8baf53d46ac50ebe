// Formats an inspection (ctl/inspection.h) as tables for people and as JSON for programs. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "ctl/inspection.h"
#include "ctl/json.h"

namespace switchyard::ctl {

// The model, its layers, its tensors, and how rows would travel. `width` as in ctl/output/tables.h.
std::string InspectionText(const Inspection& inspection, std::size_t width);

// {"checkpoint", "model_type", "quantization", "shape", "layers": [{"layers", "role", ...}],
// "tensors", "warnings",
//  "dispatch": {"assumes", "groups": [{"layers", "role", "scheme", "would": [{"worker", "phase",
//  "mode", "dtype", "row_bytes", "rule", "adjustments", "warnings"}]}]}}; a refused decision has
//  "refusal" instead of "dtype" and "row_bytes".
Json InspectionJson(const Inspection& inspection);

}  // namespace switchyard::ctl
