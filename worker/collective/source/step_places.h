// Where the experts of a plan are, layer by layer, in memory that a group's device reads: for plans
// whose experts are not in order on their workers, as they are once workers have come and gone.
//
// Not thread-safe; constant once made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/plan.h"
#include "worker/device/device_backend.h"
#include "worker/device/stream.h"

namespace switchyard {

// Whether two plans have the same processes as workers, in the same order.
bool SameWorkers(const Plan& a, const Plan& b);

class StepPlaces {
 public:
  // Copies on `stream`, so that later steps there find them. Null where all layers are in order.
  // REQUIRES: the plan makes a group. Errors: those of DeviceBackend::Allocate and Stream::Copy.
  static absl::StatusOr<std::shared_ptr<const StepPlaces>> Make(DeviceBackend* device,
                                                                Stream* stream, const Plan& plan);

  // ExchangeStep::places of the layer.
  [[nodiscard]] const std::int32_t* Of(LayerId layer) const {
    const auto at = layers_.find(layer);
    return at == layers_.end() ? nullptr : at->second;
  }

 private:
  std::unique_ptr<Buffer> memory_;
  std::map<LayerId, const std::int32_t*> layers_;
};

}  // namespace switchyard
