#include "core/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/canonical_io.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Format 1 had no kinds of scales; format 2 has wire_scale and global_scale in each config.
constexpr std::uint32_t kPlanFormat = 2;

template <typename Io, typename PlanT>
void WalkWorkers(Io& io, PlanT& plan) {
  io.ForEach(plan.workers, [&io](auto& worker) {
    io.String(worker.id);
    io.Int(worker.incarnation.high);
    io.Int(worker.incarnation.low);
    io.String(worker.endpoint);
    io.Int(worker.device);
    io.String(worker.kernel_family);
  });
}

template <typename Io, typename PlanT>
void WalkLayers(Io& io, PlanT& plan) {
  io.ForEach(plan.layers, [&io](auto& layer) {
    io.Int(layer.layer.value);
    io.ForEach(layer.experts, [&io](auto& expert) {
      io.Int(expert.expert.value);
      io.Int(expert.worker.value);
      io.Int(expert.slot.value);
    });
  });
}

template <typename Io, typename PlanT>
void WalkConfigs(Io& io, PlanT& plan) {
  io.ForEach(plan.configs, [&io](auto& config) {
    io.Int(config.layer.value);
    io.Int(config.phase);
    io.Int(config.edge.source);
    io.Int(config.edge.worker);
    io.Int(config.mode);
    io.Int(config.wire_dtype);
    io.Int(config.combine_dtype);
    io.Int(config.scheme);
    io.Int(config.max_tokens_per_step);
    io.ForEach(config.trail, [&io](auto& line) { io.String(line); });
    io.Int(config.wire_scale);
    io.Float(config.global_scale);
  });
}

// The order of the fields is the format: changing it changes every plan's hash, so it needs a new
// kPlanFormat.
template <typename Io, typename PlanT>
void Walk(Io& io, PlanT& plan) {
  io.String(plan.deployment);
  io.String(plan.model);
  io.Int(plan.epoch.value);
  io.Int(plan.shape.hidden);
  io.Int(plan.shape.intermediate);
  io.Int(plan.shape.experts);
  io.Int(plan.shape.top_k);
  io.Raw(plan.manifest.bytes);
  WalkWorkers(io, plan);
  WalkLayers(io, plan);
  WalkConfigs(io, plan);
}

// A stored enum outside its range would index tables beyond their end later on.
bool EnumsInRange(const Plan& plan) {
  return std::all_of(plan.workers.begin(), plan.workers.end(),
                     [](const PlanWorker& w) { return w.device <= kLastDeviceKind; }) &&
         std::all_of(plan.configs.begin(), plan.configs.end(), [](const DispatchConfig& c) {
           return c.phase <= Phase::kMixed && c.edge.source <= kLastDeviceKind &&
                  c.edge.worker <= kLastDeviceKind && c.mode <= DispatchMode::kLowLatency &&
                  c.wire_dtype <= DispatchDtype::kNvfp4 &&
                  c.combine_dtype <= DispatchDtype::kNvfp4 && c.scheme <= kLastQuantScheme &&
                  c.wire_scale <= ScaleKind::kE4m3;
         });
}

absl::Status Bad(const Plan& plan, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrFormat("plan of deployment %s, epoch %d: %s", plan.deployment,
                                   plan.epoch.value, what),
                   {{"deployment", plan.deployment}, {"epoch", absl::StrCat(plan.epoch.value)}});
}

}  // namespace

const LayerPlacement* Plan::FindLayer(LayerId layer) const {
  // Layers are ascending (ValidatePlan), and a step looks one up.
  const auto it = std::lower_bound(
      layers.begin(), layers.end(), layer,
      [](const LayerPlacement& placement, LayerId id) { return placement.layer < id; });
  return it != layers.end() && it->layer == layer ? &*it : nullptr;
}

const DispatchConfig* Plan::FindConfig(LayerId layer, Phase phase, Edge edge) const {
  // Linear: sessions look their configs up once, when they bind the plan.
  for (const DispatchConfig& config : configs) {
    if (config.layer == layer && config.phase == phase && config.edge == edge) return &config;
  }
  return nullptr;
}

std::optional<WorkerOrdinal> Plan::FindWorker(absl::string_view id) const {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (id == workers[i].id) return WorkerOrdinal{static_cast<std::int32_t>(i)};
  }
  return std::nullopt;
}

std::string CanonicalBytes(const Plan& plan) {
  CanonicalWriter writer;
  writer.Int(kPlanFormat);
  Walk(writer, plan);
  return writer.Take();
}

// Format 0 never existed: it is what a reader of too few bytes sees.
bool IsOlderPlan(absl::string_view bytes) {
  CanonicalReader reader(bytes);
  std::uint32_t format = 0;
  reader.Int(format);
  return format > 0 && format < kPlanFormat;
}

absl::StatusOr<Plan> ParsePlan(absl::string_view bytes) {
  CanonicalReader reader(bytes);
  std::uint32_t format = 0;
  reader.Int(format);
  Plan plan;
  Walk(reader, plan);
  // One error for all faults: the store holds only what CanonicalBytes wrote, so any of them means
  // that the store is damaged or from another version.
  if (format != kPlanFormat || !reader.ok() || !EnumsInRange(plan)) {
    return MakeError(absl::StatusCode::kDataLoss, Reason::kInternal,
                     "this version did not write the stored plan; restore the store from a copy "
                     "or start with an empty one");
  }
  return plan;
}

// Over the stored bytes, so that store, wire and memory can be compared with one number.
PlanHash HashOf(const Plan& plan) { return Sha256(CanonicalBytes(plan)); }

absl::Status ValidatePlan(const Plan& plan) {
  const MoeShape& shape = plan.shape;
  if (shape.hidden <= 0 || shape.intermediate <= 0 || shape.experts <= 0 || shape.top_k <= 0 ||
      shape.top_k > shape.experts) {
    return Bad(plan, absl::StrFormat("shape hidden %d, intermediate %d, experts %d, top-k %d",
                                     shape.hidden, shape.intermediate, shape.experts, shape.top_k));
  }
  // Epoch 0 means "none" in messages, so no plan may have it.
  if (plan.epoch.value == 0 || plan.workers.empty() || plan.layers.empty()) {
    return Bad(plan, "needs an epoch above 0, a worker and a layer");
  }
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlacement& layer = plan.layers[i];
    if (i > 0 && !(plan.layers[i - 1].layer < layer.layer))
      return Bad(plan, "layers not ascending");
    SY_RETURN_IF_ERROR(
        ValidatePlacement(layer, shape.experts, static_cast<std::int32_t>(plan.workers.size())));
    // A layer without a config could be dispatched in no phase, and only at its first step would
    // that be noticed.
    const bool configured =
        std::any_of(plan.configs.begin(), plan.configs.end(),
                    [&layer](const DispatchConfig& c) { return c.layer == layer.layer; });
    if (!configured) return Bad(plan, absl::StrFormat("layer %d has no config", layer.layer.value));
  }
  return absl::OkStatus();
}

}  // namespace switchyard
