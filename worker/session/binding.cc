#include "worker/session/binding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/error.h"

namespace switchyard {
namespace {

absl::StatusOr<LayerBinding> BindLayer(const Plan& plan, const LayerPlacement& placement,
                                       const OpenSessionOrder& order) {
  LayerBinding layer;
  layer.layer = placement.layer;
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  layer.placement = PlacementMap(placement, plan.shape.experts, workers);
  for (std::int32_t w = 0; w < workers; ++w) {
    layer.local_slots.push_back(
        static_cast<std::int32_t>(layer.placement.OnWorker(WorkerOrdinal{w}).size()));
  }
  const Edge edge{order.source, plan.workers.front().device};
  const DispatchConfig* config = plan.FindConfig(placement.layer, order.phase, edge);
  if (config == nullptr) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
        absl::StrFormat(
            "plan of epoch %d has no dispatch config for layer %d, phase %s, edge %s:%s;"
            " add the phase to the deployment",
            plan.epoch.value, placement.layer.value, PhaseName(order.phase),
            DeviceKindName(edge.source), DeviceKindName(edge.worker)),
        {{"layer", absl::StrCat(placement.layer.value)},
         {"phase", std::string(PhaseName(order.phase))},
         {"epoch", absl::StrCat(plan.epoch.value)}});
  }
  layer.config = *config;
  layer.config.mode = order.mode.value_or(config->mode);
  return layer;
}

}  // namespace

const LayerBinding* Binding::FindLayer(LayerId layer) const {
  const auto it = std::lower_bound(layers.begin(), layers.end(), layer,
                                   [](const LayerBinding& a, LayerId id) { return a.layer < id; });
  return it != layers.end() && it->layer == layer ? &*it : nullptr;
}

bool Binding::AllBound() const {
  return std::all_of(bound.begin(), bound.end(), [](bool is_bound) { return is_bound; });
}

absl::StatusOr<std::unique_ptr<Binding>> MakeBinding(const PlanNews& news,
                                                     const OpenSessionOrder& order,
                                                     const DeviceBackend& device) {
  auto binding = std::make_unique<Binding>();
  binding->plan = news.plan;
  binding->hash = news.hash;
  for (const LayerPlacement& placement : news.plan.layers) {
    absl::StatusOr<LayerBinding> layer = BindLayer(news.plan, placement, order);
    if (!layer.ok()) return layer.status();
    if (device.FindCodec(layer->config.wire_dtype) == nullptr) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
          absl::StrFormat("this source has no codec for %s, which layer %d asks for; "
                          "change the deployment's wire dtype",
                          DispatchDtypeName(layer->config.wire_dtype), layer->layer.value),
          {{"layer", absl::StrCat(layer->layer.value)},
           {"dtype", std::string(DispatchDtypeName(layer->config.wire_dtype))}});
    }
    binding->layers.push_back(*std::move(layer));
  }
  binding->workers.assign(news.plan.workers.size(), nullptr);
  binding->bound.assign(news.plan.workers.size(), false);
  return binding;
}

}  // namespace switchyard
