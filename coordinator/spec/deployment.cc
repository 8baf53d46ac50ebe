#include "coordinator/spec/deployment.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/name.h"
#include "core/base/status_macros.h"
#include "core/held_expert_bytes.h"
#include "model/synthetic_model.h"

namespace switchyard {
namespace {

// Upper limits that no sensible deployment reaches. They keep products and sums of these values
// within their types, and texts within a message.
constexpr std::int32_t kWorkersMax = 4096;
constexpr std::int32_t kTokensMax = 1 << 20;
constexpr std::size_t kPoolsMax = 64;
constexpr Duration kJoinTimeoutDefault = std::chrono::seconds(20);
constexpr Duration kJoinTimeoutMax = std::chrono::hours(24);
constexpr Duration kFormerModelKeptMax = std::chrono::hours(24);

absl::Status Bad(const DeploymentSpec& spec, absl::string_view field, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrFormat("deployment \"%s\": %s %s", spec.name, field, what),
                   {{"deployment", spec.name}, {"field", std::string(field)}});
}

std::string ModelNameOf(absl::string_view path) {
  if (absl::StartsWith(path, kSyntheticPrefix)) return "synthetic";
  // "/models/m/" and "/models/m" name the same model.
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::Status CompletePhases(DeploymentSpec& spec) {
  if (spec.phases.empty()) {
    spec.phases = {{Phase::kPrefill, {}}, {Phase::kDecode, {}}, {Phase::kMixed, {}}};
  }
  // In one order, so that two files that list the phases differently make the same plan.
  std::sort(spec.phases.begin(), spec.phases.end(),
            [](const PhaseSpec& a, const PhaseSpec& b) { return a.phase < b.phase; });
  for (std::size_t i = 1; i < spec.phases.size(); ++i) {
    if (spec.phases[i - 1].phase == spec.phases[i].phase) {
      return Bad(spec, "phases",
                 absl::StrCat("names ", PhaseName(spec.phases[i].phase), " twice; name it once"));
    }
  }
  return absl::OkStatus();
}

// Sorted, so that the order in a file does not make another specification.
absl::Status CompletePools(DeploymentSpec& full) {
  std::sort(full.pools.begin(), full.pools.end());
  if (full.pools.size() > kPoolsMax) {
    return Bad(full, "pools", absl::StrCat("must name at most ", kPoolsMax));
  }
  for (std::size_t i = 0; i < full.pools.size(); ++i) {
    const std::string& pool = full.pools[i];
    if (!IsName(pool)) {
      return Bad(full, "pools", "each must be 1 to 128 characters of [A-Za-z0-9._-]");
    }
    if (i > 0 && full.pools[i - 1] == pool) {
      return Bad(full, "pools", absl::StrCat("name ", pool, " twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const DeploymentSpec& spec) {
  // The same layer may be named once for every phase and again for one: the narrower one counts.
  // Only an exact repetition is ambiguous.
  std::set<std::pair<LayerId, std::optional<Phase>>> named;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.layer.value < 0) return Bad(spec, "layers", "names a layer below 0");
    if (named.insert({layer.layer, layer.phase}).second) continue;
    return Bad(
        spec, "layers",
        absl::StrCat("names layer ", layer.layer.value, " twice for ",
                     layer.phase ? PhaseName(*layer.phase) : "every phase", "; name it once"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const DeploymentSpec& spec, absl::string_view field, std::int64_t value,
                        std::int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return Bad(spec, field, absl::StrFormat("is %d; give 0 (the default) to %d", value, max));
}

// Each of these means a truncated or mixed-up download, so that one remedy fits all.
absl::Status BadFacts(const std::string& what) {
  return MakeError(absl::StatusCode::kDataLoss, Reason::kCheckpoint,
                   absl::StrCat("checkpoint: ", what, "; fetch the checkpoint again"));
}

}  // namespace

bool DeploymentSpec::Serves(Phase phase) const {
  return std::any_of(phases.begin(), phases.end(),
                     [phase](const PhaseSpec& p) { return p.phase == phase; });
}

std::vector<DtypeOverride> DeploymentSpec::DtypeOverrides() const {
  const std::string whole = absl::StrCat("deployment ", name);
  std::vector<DtypeOverride> overrides;
  // The widest override: the deployment's own, else the coordinator's default. "auto" is none, but
  // the deployment's "auto" still hides the default.
  if (const auto dtype = ChosenDtype(
          dispatcher_output_dtype.value_or(coordinator_defaults.dispatcher_output_dtype))) {
    const std::string default_source = absl::StrCat("the coordinator's ", kDtypeFlag);
    overrides.push_back({"", {}, {}, dtype, dispatcher_output_dtype ? whole : default_source});
  }
  // Here "auto" is an override as well: it cancels a less specific one.
  for (const PhaseSpec& phase : phases) {
    if (!phase.dispatcher_output_dtype) continue;
    overrides.push_back({"",
                         {},
                         phase.phase,
                         ChosenDtype(*phase.dispatcher_output_dtype),
                         absl::StrFormat("%s, phase %s", whole, PhaseName(phase.phase))});
  }
  for (const LayerSpec& layer : layers) {
    std::string source = absl::StrFormat("%s, layer %d", whole, layer.layer.value);
    if (layer.phase) absl::StrAppend(&source, ", phase ", PhaseName(*layer.phase));
    overrides.push_back({"", layer.layer, layer.phase, ChosenDtype(layer.dispatcher_output_dtype),
                         std::move(source)});
  }
  return overrides;
}

absl::StatusOr<DeploymentSpec> CompleteSpec(const DeploymentSpec& spec) {
  DeploymentSpec full = spec;
  if (!IsName(full.name)) {
    return Bad(full, "name", "must be 1 to 128 characters of [A-Za-z0-9._-]");
  }
  if (full.checkpoint.empty()) return Bad(full, "checkpoint", "is empty; name a directory");
  if (full.model.empty()) full.model = ModelNameOf(full.checkpoint);
  if (!IsName(full.model)) {
    return Bad(full, "model",
               absl::StrFormat("\"%s\" must be 1 to 128 characters of [A-Za-z0-9._-]", full.model));
  }
  // All of them are checked, but only the first error is reported: the operator fixes one line at a
  // time.
  absl::Status status = CompletePhases(full);
  status.Update(CheckLayers(full));
  status.Update(CheckRange(full, "min_workers", full.min_workers, kWorkersMax));
  status.Update(CheckRange(full, "max_tokens_per_step", full.max_tokens_per_step, kTokensMax));
  if (full.join_timeout < Duration::zero() || full.join_timeout > kJoinTimeoutMax) {
    status.Update(Bad(full, "join_timeout", "must be 0 (20 s) to 24 h"));
  }
  if (full.former_model_kept < Duration::zero() || full.former_model_kept > kFormerModelKeptMax) {
    status.Update(Bad(full, "former_model_kept", "must be 0 to 24 h"));
  }
  status.Update(CompletePools(full));
  if (!status.ok()) return status;
  // 0 is the value of an absent field in the file, and so it means the default.
  if (full.min_workers == 0) full.min_workers = 1;
  if (full.join_timeout == Duration::zero()) full.join_timeout = kJoinTimeoutDefault;
  if (full.max_tokens_per_step == 0) full.max_tokens_per_step = kDefaultMaxTokensPerStep;
  return full;
}

const LayerStorage& ModelFacts::StorageOf(LayerId layer) const {
  const auto at = std::lower_bound(layers.begin(), layers.end(), layer);
  return storage.at(static_cast<std::size_t>(at - layers.begin()));
}

std::int64_t ModelFacts::ExpertBytes() const {
  // The largest layer for all of them: a placement must fit whichever layers a worker holds.
  std::int64_t most = 0;
  for (const LayerStorage& layer : storage) {
    most = std::max(most, HeldExpertBytes(shape, layer.scheme));
  }
  return most;
}

absl::Status CheckLayout(const ModelFacts& facts) {
  const MoeShape& shape = facts.shape;
  // Sizes are divisors and lengths everywhere else, where they are not checked again.
  if (shape.hidden <= 0 || shape.intermediate <= 0 || shape.experts <= 0 || shape.top_k <= 0 ||
      shape.top_k > shape.experts) {
    return BadFacts(absl::StrFormat("hidden %d, intermediate %d, experts %d, top-k %d",
                                    shape.hidden, shape.intermediate, shape.experts, shape.top_k));
  }
  if (facts.layers.empty()) return BadFacts("it has no MoE layer");
  if (facts.storage.size() != facts.layers.size()) {
    return BadFacts(absl::StrFormat("%d MoE layers, but schemes for %d", facts.layers.size(),
                                    facts.storage.size()));
  }
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    if (facts.layers[i].value < 0 || (i > 0 && !(facts.layers[i - 1] < facts.layers[i]))) {
      return BadFacts("its MoE layers do not ascend");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFacts(const ModelFacts& facts) {
  SY_RETURN_IF_ERROR(CheckLayout(facts));
  // One pass in the manifest's own order, so that a row too many is found as well as a missing one.
  std::size_t row = 0;
  for (const LayerId layer : facts.layers) {
    for (std::int32_t expert = 0; expert < facts.shape.experts; ++expert) {
      for (const Projection p : kAllProjections) {
        if (row >= facts.manifest.tensors.size()) return BadFacts("its manifest ends early");
        const TensorHash& tensor = facts.manifest.tensors[row++];
        if (tensor.layer != layer || tensor.expert.value != expert || tensor.projection != p) {
          return BadFacts(absl::StrFormat("its manifest has no hash for layer %d expert %d %s",
                                          layer.value, expert, ProjectionName(p)));
        }
      }
    }
  }
  if (row != facts.manifest.tensors.size()) {
    return BadFacts("its manifest names tensors of no layer");
  }
  return absl::OkStatus();
}

}  // namespace switchyard
