#include "worker/device/cpu/codec/codec_kernels.h"

namespace switchyard {

const CodecKernels& ChooseCodecKernels([[maybe_unused]] const CpuFeatures& cpu) {
#if defined(SY_WITH_X86_KERNELS)
  if (cpu.avx512) return kAvx512CodecKernels;
#endif
  return kScalarCodecKernels;
}

const RowCodec* FindRowCodec(const CodecKernels& kernels, const WireFormat& format) {
  if (format == kFp8Format) return &kernels.fp8;
  if (format == kFp8Ue8m0Format) return &kernels.fp8_ue8m0;
  if (format == kInt8Format) return &kernels.int8;
  if (format == kNvfp4Format) return &kernels.nvfp4;
  return nullptr;
}

}  // namespace switchyard
