// Golden vectors for the parts of the cpu device: what does not pass is not advertised.
#pragma once

#include "absl/status/status.h"

#include "worker/device/cpu/kernel_family.h"
#include "worker/device/cpu/row_ops.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// `family` against the scalar family: calc_diff of every row at most 1.5e-5, with shapes that need
// padding and row counts around a tile; and each row alone bit-equal to the same row in company.
// About a millisecond. Errors: kInternal (INTERNAL) naming family, shape and row;
// kResourceExhausted (OUT_OF_MEMORY).
absl::Status TestKernelFamily(const KernelFamily& family);

// Bit-equality with the portable row kernels. Errors: kInternal (INTERNAL) naming the operation.
absl::Status TestRowKernels(const RowKernels& kernels);

// Rows at odd places come back as they were, and nothing beside them is touched. Errors: kInternal
// (INTERNAL).
absl::Status TestCodec(const Codec& codec);

}  // namespace switchyard
