#include "worker/expert/layer_runtime.h"

#include <algorithm>

namespace switchyard {

const WireDtype* LayerRuntime::Find(DispatchDtype dtype) const {
  for (const WireDtype& taken : wire_dtypes) {
    if (taken.spec.format.dtype == dtype) return &taken;
  }
  return nullptr;
}

bool LayerRuntime::Takes(const WireFormat& format) const {
  const WireDtype* taken = Find(format.dtype);
  // The format as a whole: FP8 rows with scales of another kind have the same dtype and other
  // bytes.
  return taken != nullptr && taken->spec.format == format;
}

const LayerRuntime* EpochRuntime::FindLayer(LayerId layer) const {
  // Binary search, once for each frame that arrives: the layers are ascending.
  const auto at = std::lower_bound(
      layers.begin(), layers.end(), layer,
      [](const LayerRuntime& runtime, LayerId wanted) { return runtime.layer < wanted; });
  return at != layers.end() && at->layer == layer ? &*at : nullptr;
}

}  // namespace switchyard
