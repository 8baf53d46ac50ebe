#include "services/convert/load.h"

#include "absl/strings/str_cat.h"

namespace switchyard {

void Encode(const LoadReport& in, v1::LoadReport* out) {
  out->set_deployment(in.deployment);
  out->set_epoch(in.epoch.value);
  v1::LayerLoad* layer = nullptr;
  for (const ExpertLoad& one : in.experts) {
    const auto index = static_cast<std::uint32_t>(one.layer.value);
    if (layer == nullptr || layer->layer() != index) {
      layer = out->add_layers();
      layer->set_layer(index);
    }
    layer->add_experts(static_cast<std::uint32_t>(one.expert.value));
    layer->add_rows(one.rows);
  }
}

void Decode(Decoder& at, const v1::LoadReport& in, LoadReport* out) {
  out->deployment = in.deployment();
  out->epoch.value = in.epoch();
  for (const v1::LayerLoad& layer : in.layers()) {
    if (layer.experts_size() != layer.rows_size()) {
      return at.Refuse("layers", "must have as many rows as experts");
    }
    // Each entry becomes work for the coordinator's one thread.
    if (out->experts.size() + static_cast<std::size_t>(layer.experts_size()) > kLoadExpertsMax) {
      return at.Refuse("layers", absl::StrCat("must have at most ", kLoadExpertsMax, " experts"));
    }
    for (int i = 0; i < layer.experts_size(); ++i) {
      ExpertLoad& one = out->experts.emplace_back();
      at.Int("layer", layer.layer(), &one.layer.value);
      at.Int("experts", layer.experts(i), &one.expert.value);
      one.rows = layer.rows(i);
    }
  }
}

}  // namespace switchyard
