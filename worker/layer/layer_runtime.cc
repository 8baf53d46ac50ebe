#include "worker/layer/layer_runtime.h"

#include <algorithm>

namespace switchyard {

bool LayerRuntime::Takes(DispatchDtype dtype) const {
  return std::any_of(wire_dtypes.begin(), wire_dtypes.end(),
                     [dtype](const WireDtype& taken) { return taken.dtype == dtype; });
}

const Codec* LayerRuntime::CodecOf(DispatchDtype dtype) const {
  for (const WireDtype& taken : wire_dtypes) {
    if (taken.dtype == dtype) return taken.codec.get();
  }
  return nullptr;
}

const LayerRuntime* EpochRuntime::FindLayer(LayerId layer) const {
  const auto at = std::lower_bound(
      layers.begin(), layers.end(), layer,
      [](const LayerRuntime& runtime, LayerId wanted) { return runtime.layer < wanted; });
  return at != layers.end() && at->layer == layer ? &*at : nullptr;
}

std::int64_t EpochRuntime::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const LayerRuntime& layer : layers) {
    for (const ExpertSlot& slot : layer.slots) bytes += slot.weights->bytes();
  }
  return bytes;
}

}  // namespace switchyard
