#include "worker/device/cuda/gemm/prefill_gemm.h"
#include "worker/device/cuda/gemm/prefill_launch.cuh"

namespace switchyard::cuda {

cudaError_t LaunchPrefillFp8(const PrefillFp8& product, cudaStream_t stream) {
  if (!IsValid(product.shape) || !IsValid(product.gather, product.shape.k, true) ||
      !IsAligned(product.a) || !IsValidScales(product.a_scales, product.gather) ||
      !IsAligned(product.b) || product.b_scales == nullptr || !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.a_scales = product.a_scales;
  args.b_scales[0] = product.b_scales;
  args.b_scales[1] = product.b_scales;
  args.out = product.out;
  return LaunchPrefillAs<PrefillKind::kFp8>(product.shape, product.gather,
                                            {.a = product.a,
                                             .row_bytes = product.shape.k,
                                             .b = {product.b, product.b},
                                             .b_expert_rows = product.shape.n},
                                            args, stream);
}

cudaError_t LaunchPrefillBf16(const PrefillBf16& product, cudaStream_t stream) {
  if (!IsValid(product.shape) ||
      !IsValid(product.gather, std::int64_t{product.shape.k} * 2, false) || !IsAligned(product.a) ||
      !IsAligned(product.b) || !IsAligned(product.out)) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.out = product.out;
  return LaunchPrefillAs<PrefillKind::kBf16>(product.shape, product.gather,
                                             {.a = product.a,
                                              .row_bytes = std::int64_t{product.shape.k} * 2,
                                              .b = {product.b, product.b},
                                              .b_expert_rows = product.shape.n},
                                             args, stream);
}

cudaError_t LaunchPrefillFp8Swiglu(const PrefillFp8Swiglu& product, cudaStream_t stream) {
  if (!IsValid(product.shape) || !IsValid(product.gather, product.shape.k, true) ||
      !IsAligned(product.a) || !IsValidScales(product.a_scales, product.gather) ||
      !IsAligned(product.gate) || !IsAligned(product.up) || product.gate_scales == nullptr ||
      product.up_scales == nullptr || !IsAligned(product.out) || !IsAligned(product.out_scales) ||
      product.expert_rows < product.shape.n || product.expert_rows % kBoxRows != 0) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.a_scales = product.a_scales;
  args.b_scales[0] = product.gate_scales;
  args.b_scales[1] = product.up_scales;
  args.out = product.out;
  args.out_scales = product.out_scales;
  return LaunchPrefillAs<PrefillKind::kFp8Swiglu>(product.shape, product.gather,
                                                  {.a = product.a,
                                                   .row_bytes = product.shape.k,
                                                   .b = {product.gate, product.up},
                                                   .b_expert_rows = product.expert_rows},
                                                  args, stream);
}

}  // namespace switchyard::cuda
