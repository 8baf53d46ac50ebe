#include "worker/source/p2p/bound_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

std::string EdgeName(const Edge& edge) {
  return absl::StrCat(DeviceKindName(edge.source), ":", DeviceKindName(edge.worker));
}

absl::Status NoConfig(const Plan& plan, LayerId layer, Phase phase, const Edge& edge) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
      absl::StrFormat("plan of epoch %d has no dispatch config for layer %d, phase %s, "
                      "edge %s; add the phase to the deployment",
                      plan.epoch.value, layer.value, PhaseName(phase), EdgeName(edge)),
      {{"layer", absl::StrCat(layer.value)},
       {"phase", std::string(PhaseName(phase))},
       {"edge", EdgeName(edge)},
       {"epoch", absl::StrCat(plan.epoch.value)}});
}

// A session may ask for another mode than the plan's, in which the experts may accept fewer dtypes.
absl::Status CheckModeTakes(const DispatchConfig& config, const Edge& edge, DispatchMode mode) {
  const auto takes = [&](DispatchMode in) {
    return Accepts(config.scheme, config.wire_dtype, {edge.worker, in, true},
                   DtypeOrigin::kExplicit);
  };
  if (takes(mode) || !takes(config.mode)) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
      absl::StrFormat(
          "layer %d is planned for %s with %s rows, which its experts (%s) do not accept "
          "in %s; open the session without a mode, or deploy with "
          "dispatcher_output_dtype bf16",
          config.layer.value, DispatchModeName(config.mode), DispatchDtypeName(config.wire_dtype),
          QuantSchemeInfoOf(config.scheme).name, DispatchModeName(mode)),
      {{"layer", absl::StrCat(config.layer.value)},
       {"dtype", std::string(DispatchDtypeName(config.wire_dtype))}});
}

absl::Status NoCodec(LayerId layer, const WireFormat& format) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
      absl::StrFormat("this source has no codec for %s, which layer %d uses; "
                      "change the deployment's wire dtype",
                      WireFormatName(format), layer.value),
      {{"layer", absl::StrCat(layer.value)}, {"format", std::string(WireFormatName(format))}});
}

// A step has one mode, whatever its edges, because mode decides which side applies the weights;
// each edge has its own wire dtype, which only its two ends see.
absl::Status BindEdge(const Plan& plan, const Edge& edge, const OpenSessionRequest& request,
                      const DeviceBackend& device, BoundLayer* layer) {
  const DispatchConfig* config = plan.FindConfig(layer->layer, request.phase, edge);
  if (config == nullptr) return NoConfig(plan, layer->layer, request.phase, edge);
  const DispatchMode mode = request.mode.value_or(config->mode);
  // The first edge decides; the others must agree.
  if (!layer->codecs.empty() && mode != layer->mode) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
        absl::StrFormat("layer %d, phase %s: edge %s is planned for %s, another edge for %s; open "
                        "the session with one mode",
                        layer->layer.value, PhaseName(request.phase), EdgeName(edge),
                        DispatchModeName(mode), DispatchModeName(layer->mode)),
        {{"layer", absl::StrCat(layer->layer.value)}, {"edge", EdgeName(edge)}});
  }
  // The coordinator checked the plan in its own mode only.
  SY_RETURN_IF_ERROR(CheckModeTakes(*config, edge, mode));
  layer->mode = mode;
  auto codec = device.MakeCodec({config->format(), config->global_scale});
  if (!codec.ok()) return NoCodec(layer->layer, config->format());
  layer->codecs.push_back(*std::move(codec));
  // The least of the edges: a step is one batch for all of them.
  const std::int32_t most = config->max_tokens_per_step;
  if (most > 0 && (layer->max_tokens_per_step == 0 || most < layer->max_tokens_per_step)) {
    layer->max_tokens_per_step = most;
  }
  return absl::OkStatus();
}

// A layer's configs are looked up once for each worker, not for each edge: plans have few workers,
// and this runs once for an epoch.
absl::StatusOr<BoundLayer> BindLayer(const Plan& plan, const LayerPlacement& placement,
                                     const OpenSessionRequest& request,
                                     const DeviceBackend& device) {
  BoundLayer layer;
  layer.layer = placement.layer;
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  // Indexed by expert: the plan lists experts by worker and slot.
  layer.placement = PlacementMap(placement, plan.shape.experts, workers);
  for (std::int32_t w = 0; w < workers; ++w) {
    layer.local_slots.push_back(
        static_cast<std::int32_t>(layer.placement.OnWorker(WorkerOrdinal{w}).size()));
  }
  for (const PlanWorker& worker : plan.workers) {
    SY_RETURN_IF_ERROR(BindEdge(plan, {request.source, worker.device}, request, device, &layer));
  }
  return layer;
}

// A format that the device lacks leaves the layer's rows to the host.
std::vector<std::shared_ptr<const Codec>> TensorCodecs(const Plan& plan, const BoundLayer& layer,
                                                       const OpenSessionRequest& request,
                                                       const DeviceBackend& tensors) {
  std::vector<std::shared_ptr<const Codec>> codecs;
  for (const PlanWorker& worker : plan.workers) {
    const Edge edge{request.source, worker.device};
    const DispatchConfig* config = plan.FindConfig(layer.layer, request.phase, edge);
    auto codec = tensors.MakeCodec({config->format(), config->global_scale});
    if (!codec.ok()) return {};
    codecs.push_back(*std::move(codec));
  }
  return codecs;
}

}  // namespace

const BoundLayer* BoundPlan::FindLayer(LayerId layer) const {
  // Plans list their layers in ascending order.
  const auto it = std::lower_bound(layers.begin(), layers.end(), layer,
                                   [](const BoundLayer& a, LayerId id) { return a.layer < id; });
  return it != layers.end() && it->layer == layer ? &*it : nullptr;
}

std::optional<std::size_t> BoundPlan::OrdinalOf(const Attachment& attachment) const {
  const auto at = std::find(workers.begin(), workers.end(), &attachment);
  if (at == workers.end()) return std::nullopt;
  return static_cast<std::size_t>(at - workers.begin());
}

bool BoundPlan::AllConfirmed() const {
  return std::all_of(confirmed.begin(), confirmed.end(), [](bool yes) { return yes; });
}

absl::StatusOr<std::unique_ptr<BoundPlan>> MakeBoundPlan(const PlanUpdate& update,
                                                         const OpenSessionRequest& request,
                                                         const DeviceBackend& device,
                                                         const DeviceBackend* tensors) {
  // Everything is resolved here, so that a plan that cannot be run is refused before any worker
  // gets a request, and a step finds its codecs without a search.
  auto bound = std::make_unique<BoundPlan>();
  bound->plan = update.plan;
  bound->hash = update.hash;
  for (const LayerPlacement& placement : update.plan.layers) {
    SY_ASSIGN_OR_RETURN(BoundLayer layer, BindLayer(update.plan, placement, request, device));
    if (tensors != nullptr) {
      layer.tensor_codecs = TensorCodecs(update.plan, layer, request, *tensors);
    }
    bound->layers.push_back(std::move(layer));
  }
  bound->workers.assign(update.plan.workers.size(), nullptr);
  bound->confirmed.assign(update.plan.workers.size(), false);
  return bound;
}

}  // namespace switchyard
