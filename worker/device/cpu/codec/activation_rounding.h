// The rows that a quantized kernel would read: encoded and decoded again, in BF16
// (core/activation_format.h).
//
// NaN and infinity: as in codec_kernels.h, the group that holds one becomes NaN. With kFp8Static
// only the value itself does, and infinities saturate.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/activation_format.h"
#include "core/format/bf16.h"
#include "worker/device/cpu/codec/codec_kernels.h"

namespace switchyard {

// Bytes of scratch that RoundRow needs for `count` values in any format.
std::int64_t RoundingScratchBytes(std::int64_t count);

// `in` and `out`: `count` values each; they may be the same. `spec.format` is not kBf16. Allocates
// nothing. Thread-safe.
void RoundRow(const CodecKernels& kernels, const ActivationSpec& spec, const Bf16* in,
              std::int64_t count, std::byte* scratch, Bf16* out);

// Rows whose values are known, and agreement with the scalar kernels. Some ten microseconds.
// Errors: kInternal (INTERNAL) naming the format.
absl::Status TestRounding(const CodecKernels& kernels, ActivationFormat format);

}  // namespace switchyard
