// The shipped model, or another checkpoint, in a scheme of switchyard-quantize.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace switchyard::testing {

// Writes `in` to the folder `out` in `scheme`, a row of switchyard-quantize --list. Schemes with
// stored input scales get those of rows up to about 4.5. Errors: those of FindWriteScheme and
// Quantize.
absl::Status QuantizeModel(const std::string& in, const std::string& scheme,
                           const std::string& out);

}  // namespace switchyard::testing
