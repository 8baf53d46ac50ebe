// A GPU must compute the results of the CPU's scalar codecs and kernels before its worker
// advertises it. These tests use the device seam. `scalar` is the CPU with its scalar kernel
// family.
//
// Each test takes some milliseconds. Errors: kInternal (INTERNAL) naming the part; those of the
// device.
#pragma once

#include "absl/status/status.h"

#include "core/activation_format.h"
#include "core/format/wire_format.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Rows of every magnitude, of zeros and with a NaN, encoded: every byte; and short last groups.
absl::Status TestCudaFormat(DeviceBackend& device, const WireFormat& format);

// Each product: BF16 and narrow weights, without scales and with those of blocks and groups.
absl::Status TestCudaProducts(DeviceBackend& device, DeviceBackend& scalar);

// Experts that round their rows and h to `format`, with weights of the codes that go with it.
absl::Status TestCudaRounding(DeviceBackend& device, DeviceBackend& scalar,
                              ActivationFormat format);

}  // namespace switchyard
