#include "worker/collective/group_codecs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<GroupCodecs> GroupCodecs::Make(const DeviceBackend& device,
                                              const CollectiveGroup& group) {
  GroupCodecs codecs;
  for (const LayerForm& form : group.forms) {
    Row row{.form = form, .codec = nullptr};
    const auto alike =
        std::find_if(codecs.rows_.begin(), codecs.rows_.end(), [&](const Row& other) {
          return other.form.wire == form.wire && other.form.global_scale == form.global_scale;
        });
    if (alike != codecs.rows_.end()) {
      row.codec = alike->codec;
    } else if (form.wire != kBf16Format) {
      auto codec = device.MakeCodec({.format = form.wire, .global_scale = form.global_scale});
      if (!codec.ok()) {
        return WithMetadata(
            Annotate(codec.status(), absl::StrCat("rows of layer ", form.layer.value)), "layer",
            absl::StrCat(form.layer.value));
      }
      row.codec = *std::move(codec);
    }
    codecs.rows_.push_back(std::move(row));
  }
  if (group.combine_dtype != DispatchDtype::kBf16) {
    SY_ASSIGN_OR_RETURN(codecs.sums_,
                        device.MakeCodec({.format = DefaultWireFormat(group.combine_dtype)}));
  }
  return codecs;
}

StepCodecs GroupCodecs::Of(LayerId layer) const {
  const auto at =
      std::lower_bound(rows_.begin(), rows_.end(), layer,
                       [](const Row& row, LayerId wanted) { return row.form.layer < wanted; });
  if (at == rows_.end() || at->form.layer != layer) return {};
  return {.rows = at->codec.get(), .sums = sums_.get()};
}

}  // namespace switchyard
