#include "tools/support/amax_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard::qwen3_moe {

absl::StatusOr<AmaxTable> MergeAmax(const AmaxShape& shape,
                                    std::span<const AttachmentCounters::Hit> hits) {
  AmaxTable table;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    table.layers.push_back(
        {static_cast<std::int32_t>(layer), std::vector<ExpertAmax>(shape.experts)});
  }
  bool recorded = false;
  for (const AttachmentCounters::Hit& hit : hits) {
    const auto layer = static_cast<std::size_t>(hit.layer.value);
    const auto expert = static_cast<std::size_t>(hit.expert.value);
    if (layer >= shape.layers || expert >= shape.experts) {
      return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                       absl::StrCat("a worker counted rows of layer ", hit.layer.value, " expert ",
                                    hit.expert.value, "; the model has ", shape.layers,
                                    " layers of ", shape.experts, " experts"));
    }
    ExpertAmax& most = table.layers[layer].experts[expert];
    most.gate_up = std::max(most.gate_up, hit.inputs_amax);
    most.down = std::max(most.down, hit.middle_amax);
    recorded = recorded || hit.inputs_amax > 0;
  }
  if (recorded) return table;
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                   "no worker recorded a magnitude; feed a prompt or a text through a session that "
                   "records them");
}

std::string QuantizedWarning(const Checkpoint& checkpoint) {
  std::int32_t quantized = 0;
  const LayerExperts* first = nullptr;
  LayerId first_layer;
  for (const LayerId layer : MoeLayersOf(checkpoint.config())) {
    const LayerExperts* experts = checkpoint.FindExperts(layer);
    if (experts == nullptr || experts->quant().scheme == QuantScheme::kNone) continue;
    if (++quantized > 1) continue;
    first = experts;
    first_layer = layer;
  }
  if (first == nullptr) return "";
  return absl::StrCat(quantized, " of the layers, the first of them layer ", first_layer.value,
                      ", are quantized already (", QuantSchemeInfoOf(first->quant().scheme).name,
                      "): the magnitudes are those of these weights. Record them from the BF16 "
                      "checkpoint that is to be quantized.");
}

}  // namespace switchyard::qwen3_moe
