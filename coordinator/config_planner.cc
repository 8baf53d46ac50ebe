#include "coordinator/config_planner.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/device_profile.h"
#include "core/error.h"
#include "core/status_macros.h"

namespace switchyard {
namespace {

constexpr std::array kSources = {DeviceKind::kCpu};

std::string WhyMode(const PhaseSpec& phase) {
  if (phase.mode) {
    return absl::StrFormat("mode %s: the deployment asks for it in phase %s",
                           DispatchModeName(*phase.mode), PhaseName(phase.phase));
  }
  if (phase.phase == Phase::kDecode) {
    return "mode low_latency: decode steps have few tokens, so a row for each expert, summed at "
           "the source, comes back soonest";
  }
  return absl::StrFormat(
      "mode normal: %s steps may have many tokens, so a row for each worker, summed there, saves "
      "bytes",
      PhaseName(phase.phase));
}

std::string WhyTokens(const DeploymentSpec& spec, DispatchMode mode) {
  if (mode == DispatchMode::kNormal) {
    return "max_tokens_per_step unbounded: normal mode cuts a step into chunks";
  }
  if (spec.max_tokens_per_step == kDefaultMaxTokensPerStep) {
    return absl::StrFormat("max_tokens_per_step %d: the default", spec.max_tokens_per_step);
  }
  return absl::StrFormat("max_tokens_per_step %d: the deployment asks for it",
                         spec.max_tokens_per_step);
}

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

std::vector<std::string> Trail(const DeploymentSpec& spec, const ModelFacts& facts,
                               const PhaseSpec& phase, DispatchMode mode,
                               std::span<const CapabilitySet> workers) {
  std::vector<std::string> trail;
  trail.push_back(WhyMode(phase));
  trail.push_back(absl::StrFormat(
      "wire dtype bf16: the experts are unquantised (scheme %s) and every worker takes bf16",
      QuantSchemeInfoOf(facts.scheme).name));
  trail.push_back("combine dtype bf16: results travel in the dtype of the activations");
  trail.push_back(WhyTokens(spec, mode));
  for (std::string& line : LimitLines(mode, facts.shape, workers)) trail.push_back(std::move(line));
  return trail;
}

}  // namespace

std::span<const DeviceKind> PlannedSources() { return kSources; }

DispatchMode DefaultModeOf(Phase phase) {
  return phase == Phase::kDecode ? DispatchMode::kLowLatency : DispatchMode::kNormal;
}

absl::Status CheckWorkerSuits(const ModelFacts& facts, const CapabilitySet& worker) {
  const DeviceProfile* profile = FindDeviceProfile(worker.device_profile);
  if (profile == nullptr || profile->kind != worker.device) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("device profile \"%s\" is not one of kind %s",
                                     worker.device_profile, DeviceKindName(worker.device)));
  }
  if (!worker.Takes(DispatchDtype::kBf16)) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "takes no bf16 rows: its self-test of that codec did not pass");
  }
  if (!worker.Takes(facts.scheme)) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrFormat("takes no weights of scheme %s: its self-test did not pass",
                                     QuantSchemeInfoOf(facts.scheme).name));
  }
  if (worker.max_top_k > 0 && facts.shape.top_k > worker.max_top_k) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadTopK,
        absl::StrFormat("takes top-k up to %d and the model has %d", worker.max_top_k,
                        facts.shape.top_k),
        {{"want", absl::StrCat(facts.shape.top_k)}, {"have", absl::StrCat(worker.max_top_k)}});
  }
  return absl::OkStatus();
}

absl::Status CheckModeLimits(DispatchMode mode, const MoeShape& shape,
                             std::int32_t max_tokens_per_step,
                             std::span<const CapabilitySet> workers) {
  for (const CapabilitySet& worker : workers) {
    const DeviceProfile* profile = FindDeviceProfile(worker.device_profile);
    if (profile == nullptr) continue;
    ProfileDemand demand{shape, static_cast<std::int32_t>(workers.size()), max_tokens_per_step};
    if (mode == DispatchMode::kNormal) {
      demand.shape.top_k = 0;  // The limits on top-k and M are those of low_latency buffers.
      demand.max_tokens_per_step = 0;
    }
    SY_RETURN_IF_ERROR(CheckLimits(*profile, demand));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DispatchConfig>> PlanConfigs(const DeploymentSpec& spec,
                                                        const ModelFacts& facts,
                                                        std::span<const CapabilitySet> workers) {
  std::set<Edge> edges;
  for (const CapabilitySet& worker : workers) {
    for (const DeviceKind source : kSources) edges.insert({source, worker.device});
  }
  std::vector<DispatchConfig> of_a_layer;
  for (const PhaseSpec& phase : spec.phases) {
    const DispatchMode mode = phase.mode.value_or(DefaultModeOf(phase.phase));
    const absl::Status limits =
        CheckModeLimits(mode, facts.shape, spec.max_tokens_per_step, workers);
    if (!limits.ok()) return Annotate(limits, absl::StrCat("phase ", PhaseName(phase.phase)));
    DispatchConfig config;
    config.phase = phase.phase;
    config.mode = mode;
    config.scheme = facts.scheme;
    config.max_tokens_per_step = mode == DispatchMode::kLowLatency ? spec.max_tokens_per_step : 0;
    config.trail = Trail(spec, facts, phase, mode, workers);
    for (const Edge& edge : edges) {
      config.edge = edge;
      of_a_layer.push_back(config);
    }
  }
  std::vector<DispatchConfig> configs;
  configs.reserve(of_a_layer.size() * facts.layers.size());
  for (const LayerId layer : facts.layers) {
    for (DispatchConfig& config : of_a_layer) {
      config.layer = layer;
      configs.push_back(config);
    }
  }
  return configs;
}

}  // namespace switchyard
