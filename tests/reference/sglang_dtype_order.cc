#include "tests/reference/sglang_dtype_order.h"

namespace switchyard::reference {
namespace {

// What both orders have after the option and the flag. The alias bf16_dispatch is not read.
SglangChoice Rest(const OrderInputs& inputs, bool cutlass_quantizes) {
  if (inputs.config && inputs.config->input_global_scale && !inputs.config->global_scale_is_null) {
    return {DispatchDtype::kNvfp4, "2"};
  }
  if (inputs.config && inputs.config->dispatcher_output_dtype) {
    return {inputs.config->dispatcher_output_dtype, "3"};
  }
  if (inputs.runner == RunnerBackend::kFlashinferCutedsl ||
      (cutlass_quantizes && inputs.runner == RunnerBackend::kCutlass)) {
    return {DispatchDtype::kBf16, "4"};
  }
  if (inputs.worker == DeviceKind::kAscend) return {DispatchDtype::kBf16, "5"};
  return {DispatchDtype::kFp8, "6"};
}

}  // namespace

SglangChoice SglangMergedOrder(const OrderInputs& inputs) {
  if (inputs.requested) return {inputs.requested->dtype, "0"};
  if (inputs.flags.bf16_dispatch) return {DispatchDtype::kBf16, "1"};
  return Rest(inputs, /*cutlass_quantizes=*/true);
}

SglangChoice SglangDraftOrder(const OrderInputs& inputs) {
  SglangChoice choice;
  if (inputs.flags.bf16_dispatch) {
    choice = {DispatchDtype::kBf16, "0"};
  } else if (inputs.requested) {
    choice = {inputs.requested->dtype, "1"};
  } else {
    choice = Rest(inputs, /*cutlass_quantizes=*/false);
  }
  if (choice.dtype == DispatchDtype::kInt8) choice.dtype.reset();
  return choice;
}

}  // namespace switchyard::reference
