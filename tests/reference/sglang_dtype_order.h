// How SGLang orders its rules for the wire dtype, to list where this service decides otherwise: as
// merged (pull request 22822), and as that pull request was drafted. Written from those sources and
// apart from core/resolve/dtype_order.h.
#pragma once

#include <optional>

#include "core/resolve/dtype_order.h"

namespace switchyard::reference {

struct SglangChoice {
  std::optional<DispatchDtype> dtype;  // nullopt: the order refuses the dtype of this step
  const char* step = "";
};

SglangChoice SglangMergedOrder(const OrderInputs& inputs);
// The flag before the option, no INT8, and cutlass does not quantize by itself.
SglangChoice SglangDraftOrder(const OrderInputs& inputs);

}  // namespace switchyard::reference
