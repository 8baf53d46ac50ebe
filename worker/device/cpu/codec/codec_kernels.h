// How the cpu device encodes and decodes a row of each quantized format. Two implementations,
// bit-identical for every input: scalar, and AVX-512.
//
// x: a value of the row, BF16 widened to FP32. amax: the largest |x| of a group. Every operation is
// FP32, rounded to nearest even; e4m3() and e2m1() are core/format/fp8.h and core/format/fp4.h.
//   fp8        amax' = max(1e-4, amax); scale = amax' / 448; q = e4m3(x * (448 / amax'))
//   fp8_ue8m0  2^e, the least power of two >= amax' / 448; scale = e + 127; q = e4m3(x * 2^-e)
//   int8       scale = amax / 127; q = round(x / scale), ties to even, within [-128, 127]; a row of
//              zeros has scale 0 and q 0
//   nvfp4      scale = e4m3(g * amax / 6), g the global scale; q = e2m1(x * (g / scale)), and 0 (of
//              the sign of x) where scale is 0; the even element is the low nibble, and the last
//              high nibble of an odd row is 0
// The factors 448 / amax' and g / scale come first, as in DeepEP and in CUDA's NVFP4 conversion:
// x * 448 would overflow. Decoding is q * scale, for nvfp4 (q * scale) / g, rounded to BF16.
//
// NaN and infinity: a group that holds one cannot be scaled, so its scale is NaN (0x7fc00000, 0xff,
// or E4M3's 0x7f) and the whole group decodes as NaN; its codes are 0x7f for fp8, else 0. Other
// groups are as they would be without it. Whatever decodes as NaN does so as 0x7fc0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/format/wire_format.h"
#include "worker/device/cpu/machine/cpuid.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {

// One row. `data` and `scales` are RowBytesOf bytes at any address, and nothing beside them is
// touched; `hidden` > 0. Decode takes any bytes. Plain functions, so that the AVX-512 file shares
// no inline code with the rest.
struct RowCodec {
  void (*encode)(const Bf16* row, std::int64_t hidden, float global_scale, std::byte* data,
                 std::byte* scales);
  void (*decode)(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                 float global_scale, Bf16* out);
};

// One implementation of all formats.
struct CodecKernels {
  const char* name;
  RowCodec fp8;
  RowCodec fp8_ue8m0;
  RowCodec int8;
  RowCodec nvfp4;
};

extern const CodecKernels kScalarCodecKernels;
extern const CodecKernels kAvx512CodecKernels;  // x86-64 builds only

// The fastest that `cpu` can run.
const CodecKernels& ChooseCodecKernels(const CpuFeatures& cpu);

// nullptr for a format that these kernels do not have; BF16 needs none.
const RowCodec* FindRowCodec(const CodecKernels& kernels, const WireFormat& format);

}  // namespace switchyard
