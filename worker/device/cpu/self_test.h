// Golden vectors for the parts of the cpu device: what does not pass is not advertised.
#pragma once

#include "absl/status/status.h"

#include "worker/device/cpu/codec/codec_kernels.h"
#include "worker/device/cpu/kernel/kernel_family.h"
#include "worker/device/cpu/kernel/row_ops.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {

// `family` against the scalar family: calc_diff of every row at most 1.5e-5, with shapes that need
// padding and row counts around a tile; and each row by itself bit-equal to the same row in a
// batch. With scales and biases too. Some milliseconds. Errors: kInternal (INTERNAL) naming family,
// shape and row; kResourceExhausted (OUT_OF_MEMORY).
absl::Status TestKernelFamily(const KernelFamily& family);

// Bit-equality with the portable row kernels. Errors: kInternal (INTERNAL) naming the operation.
absl::Status TestRowKernels(const RowKernels& kernels);

// Rows at odd places come back as they were, and nothing beside them is touched. Errors: kInternal
// (INTERNAL).
absl::Status TestCodec(const HostCodec& codec);

// One quantized format of `kernels`: a row whose codes are known; and bit-equality with the scalar
// kernels for rows of short last groups, of every magnitude, of zeros and with a NaN, and for bytes
// that no encoder wrote; nothing beside a row is touched. Some ten microseconds. Errors: kInternal
// (INTERNAL) naming kernels, format and row.
absl::Status TestRowCodec(const CodecKernels& kernels, const WireFormat& format);

}  // namespace switchyard
