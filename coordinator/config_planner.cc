#include "coordinator/config_planner.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/device_profile.h"
#include "core/resolve/dispatch_resolver.h"
#include "core/resolve/mode_limits.h"
#include "core/resolve/mode_resolver.h"

namespace switchyard {
namespace {

// Sources run the library on the host, whatever device their engine uses, except for those of
// collective sessions, which are ranks of a group on devices of their workers' kind.
constexpr std::array kSources = {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kAscend};

// Every source can encode these: the client library does it, whichever engine loads it.
CapabilitySet SourceCapabilities(DeviceKind kind) {
  CapabilitySet source;
  source.device = kind;
  source.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                        DispatchDtype::kNvfp4};
  return source;
}

std::string WhyTokens(const DeploymentSpec& spec, DispatchMode mode) {
  if (mode == DispatchMode::kNormal) {
    return "max_tokens_per_step unbounded: normal mode splits a step into chunks";
  }
  if (spec.max_tokens_per_step == kDefaultMaxTokensPerStep) {
    return absl::StrFormat("max_tokens_per_step %d: the default", spec.max_tokens_per_step);
  }
  return absl::StrFormat("max_tokens_per_step %d: set by the deployment", spec.max_tokens_per_step);
}

// For the trail: which limits were checked. Passing them is a reason too, and `explain` shows it.
std::vector<std::string> LimitLines(DispatchMode mode, const MoeShape& shape,
                                    std::span<const CapabilitySet> workers) {
  std::set<std::string> names;
  for (const CapabilitySet& worker : workers) names.insert(worker.device_profile);
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    const DeviceProfile* profile = FindDeviceProfile(name);
    if (profile == nullptr) continue;
    if (mode == DispatchMode::kLowLatency) {
      lines.push_back(absl::StrFormat("limits of device profile %s hold: top-k %d of %d", name,
                                      shape.top_k, profile->max_top_k));
    } else {
      lines.push_back(absl::StrFormat("limits of device profile %s hold", name));
    }
  }
  return lines;
}

// An edge and the workers at its far end. They are resolved together: a step uses one wire dtype
// for all workers of a kind.
struct EdgePlan {
  Edge edge;
  std::vector<CapabilitySet> workers;
};

std::vector<EdgePlan> EdgesOf(std::span<const CapabilitySet> workers) {
  // A map, so that the configs come out ascending: the order is part of the plan's hash.
  std::map<Edge, std::vector<CapabilitySet>> by_edge;
  for (const CapabilitySet& worker : workers) {
    for (const DeviceKind source : kSources) {
      if (IsPlanned({source, worker.device})) by_edge[{source, worker.device}].push_back(worker);
    }
  }
  std::vector<EdgePlan> edges;
  for (auto& [edge, of_edge] : by_edge) edges.push_back({edge, std::move(of_edge)});
  return edges;
}

// Only NVFP4 rows have one. The values exist: the resolver refuses NVFP4 without a global scale.
float GlobalScaleOf(const LayerFacts& layer, DispatchDtype dtype) {
  if (dtype != DispatchDtype::kNvfp4) return 1.0F;
  return layer.quant_config.value().input_global_scale.value();
}

struct PlannedConfig {
  DispatchConfig config;
  std::vector<Warning> warnings;
};

absl::StatusOr<PlannedConfig> PlanOne(const DeploymentSpec& spec, const ModelFacts& facts,
                                      LayerId layer, const PhaseSpec& phase, const EdgePlan& edge) {
  DispatchRequest request = RequestFor(spec, facts.shape, layer, facts.StorageOf(layer), phase);
  request.source = SourceCapabilities(edge.edge.source);
  request.workers = edge.workers;
  SY_ASSIGN_OR_RETURN(DecisionTrace trace, ResolveDispatch(request));
  DispatchConfig config = ConfigOf(request, trace);
  return PlannedConfig{std::move(config), std::move(trace.warnings)};
}

void AddNew(const std::vector<Warning>& found, std::vector<Warning>* all) {
  if (all == nullptr) return;
  for (const Warning& warning : found) {
    // One line of each kind is enough: hundreds of layers would repeat it.
    const bool known = std::any_of(all->begin(), all->end(),
                                   [&warning](const Warning& one) { return one.id == warning.id; });
    if (!known) all->push_back(warning);
  }
}

}  // namespace

std::span<const DeviceKind> PlannedSources() { return kSources; }

bool IsPlanned(const Edge& edge) {
  return edge.source == DeviceKind::kCpu || edge.source == edge.worker;
}

absl::Status CheckWorkerSuits(const ModelFacts& facts, const CapabilitySet& worker) {
  // Registration checks this too; a store or a test may bring capabilities that never registered.
  const DeviceProfile* profile = FindDeviceProfile(worker.device_profile);
  if (profile == nullptr || profile->kind != worker.device) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("device profile \"%s\" is not one of kind %s",
                                     worker.device_profile, DeviceKindName(worker.device)));
  }
  // BF16 is the dtype that every other one falls back to, so that a worker must take it.
  if (!worker.Takes(DispatchDtype::kBf16)) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "does not take bf16 rows: its self-test of that codec failed");
  }
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    const QuantScheme scheme = facts.storage[i].scheme;
    if (worker.Takes(scheme)) continue;
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrFormat("does not take weights of scheme %s, which layer %d has: its "
                                     "self-test of that scheme failed",
                                     QuantSchemeInfoOf(scheme).name, facts.layers[i].value),
                     {{"layer", absl::StrCat(facts.layers[i].value)}});
  }
  // 0: the worker has no limit.
  if (worker.max_top_k > 0 && facts.shape.top_k > worker.max_top_k) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadTopK,
        absl::StrFormat("takes top-k up to %d, but the model has %d", worker.max_top_k,
                        facts.shape.top_k),
        {{"want", absl::StrCat(facts.shape.top_k)}, {"have", absl::StrCat(worker.max_top_k)}});
  }
  return absl::OkStatus();
}

absl::Status CheckLayersExist(const DeploymentSpec& spec, const ModelFacts& facts) {
  for (const LayerSpec& layer : spec.layers) {
    // Layers ascend (CheckFacts).
    if (std::binary_search(facts.layers.begin(), facts.layers.end(), layer.layer)) continue;
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("layers: layer %d is not an MoE layer of model %s; the model has %d, from "
                        "%d to %d",
                        layer.layer.value, spec.model, facts.layers.size(),
                        facts.layers.front().value, facts.layers.back().value),
        {{"field", "layers"}, {"layer", absl::StrCat(layer.layer.value)}});
  }
  return absl::OkStatus();
}

DispatchRequest RequestFor(const DeploymentSpec& spec, const MoeShape& shape, LayerId layer,
                           const LayerStorage& storage, const PhaseSpec& phase) {
  DispatchRequest request;
  request.deployment = spec.name;
  request.model = spec.model;
  request.layer.layer = layer;
  request.layer.scheme = storage.scheme;
  request.layer.role = storage.role;
  request.layer.excluded = storage.excluded;
  request.layer.quant_config = storage.quant_config;
  request.layer.power_of_two_scales = storage.power_of_two_scales;
  request.layer.runner = spec.moe_runner_backend;
  request.phase = phase.phase;
  request.mode = phase.mode;
  request.overrides = spec.DtypeOverrides();
  request.flags = spec.coordinator_defaults.Flags();
  request.shape = shape;
  // The limit and not the size of a step: buffers are sized for the largest step.
  request.tokens = spec.max_tokens_per_step;
  return request;
}

DispatchConfig ConfigOf(const DispatchRequest& request, const DecisionTrace& trace) {
  const bool low_latency = trace.mode == DispatchMode::kLowLatency;
  const DispatchDtype dtype = trace.outcome.value().dtype();
  return {.layer = request.layer.layer,
          .phase = request.phase,
          .edge = trace.subject.edge,
          .mode = trace.mode,
          .wire_dtype = dtype,
          .combine_dtype = trace.outcome->combine_dtype,
          .scheme = request.layer.scheme.value_or(QuantScheme::kNone),
          // 0 stands for unbounded: normal mode splits any step into chunks.
          .max_tokens_per_step = low_latency ? request.tokens : 0,
          .trail = TrailLines(trace),
          .wire_scale = trace.outcome->format.scale,
          .global_scale = GlobalScaleOf(request.layer, dtype)};
}

absl::StatusOr<std::vector<DispatchConfig>> PlanConfigs(const DeploymentSpec& spec,
                                                        const ModelFacts& facts,
                                                        std::span<const CapabilitySet> workers,
                                                        std::vector<Warning>* warnings) {
  // Before anything is resolved: an override for a layer that does not exist would otherwise be
  // ignored silently.
  SY_RETURN_IF_ERROR(CheckLayersExist(spec, facts));
  const std::vector<EdgePlan> edges = EdgesOf(workers);
  // Limits depend on the phase and not on the layer: they are checked once, and their lines are the
  // same in every trail of the phase.
  std::vector<std::vector<std::string>> limits;  // by phase
  for (const PhaseSpec& phase : spec.phases) {
    const DispatchMode mode = ModeOfConfig(phase.phase, phase.mode).mode;
    const absl::Status held = CheckModeLimits(mode, facts.shape, spec.max_tokens_per_step, workers);
    // The limits of a device are those of its kernels and buffers. A plan above them would be
    // refused by the workers, one PREPARE after another.
    if (!held.ok()) return Annotate(held, absl::StrCat("phase ", PhaseName(phase.phase)));
    limits.push_back({WhyTokens(spec, mode)});
    for (std::string& line : LimitLines(mode, facts.shape, workers)) {
      limits.back().push_back(std::move(line));
    }
  }
  std::vector<DispatchConfig> configs;
  configs.reserve(facts.layers.size() * spec.phases.size() * edges.size());
  // Layer, phase, edge: the order that Plan promises, and that its hash depends on.
  for (const LayerId layer : facts.layers) {
    for (std::size_t p = 0; p < spec.phases.size(); ++p) {
      for (const EdgePlan& edge : edges) {
        SY_ASSIGN_OR_RETURN(PlannedConfig planned,
                            PlanOne(spec, facts, layer, spec.phases[p], edge));
        AddNew(planned.warnings, warnings);
        DispatchConfig& config = planned.config;
        config.trail.insert(config.trail.end(), limits[p].begin(), limits[p].end());
        configs.push_back(std::move(config));
      }
    }
  }
  return configs;
}

}  // namespace switchyard
