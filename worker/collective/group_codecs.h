// The codecs of a group's layers, made once for all steps of a rank.
//
// Immutable once made; thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/resolve/collective_group.h"
#include "worker/device/device_backend.h"
#include "worker/device/exchange.h"

namespace switchyard {

class GroupCodecs {
 public:
  // `device` outlives the codecs. Errors: those of DeviceBackend::MakeCodec, with the layer.
  static absl::StatusOr<GroupCodecs> Make(const DeviceBackend& device,
                                          const CollectiveGroup& group);

  // A layer that the group does not have travels as BF16: its steps fail for another reason.
  [[nodiscard]] StepCodecs Of(LayerId layer) const;

 private:
  struct Row {
    LayerForm form;
    std::shared_ptr<const Codec> codec;  // shared by layers of one form; null: BF16
  };
  std::vector<Row> rows_;              // ascending by layer
  std::shared_ptr<const Codec> sums_;  // null: BF16
};

}  // namespace switchyard
