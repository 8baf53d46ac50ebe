#include "core/resolve/collective_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status NoGroup(const Plan& plan, absl::StatusCode code, Reason reason,
                     absl::string_view why) {
  return MakeError(code, reason,
                   absl::StrFormat("deployment %s cannot serve a collective session: %s%s",
                                   plan.deployment, why, kAskForP2p),
                   {{"deployment", plan.deployment}});
}

absl::Status Unsupported(const Plan& plan, absl::string_view why) {
  return NoGroup(plan, absl::StatusCode::kFailedPrecondition, Reason::kUnsupported, why);
}

absl::Status CheckHosts(const Plan& plan, const CollectiveDemand& demand) {
  const std::vector<std::string>& hosts = demand.hosts;
  if (hosts.empty()) return absl::OkStatus();
  if (hosts.size() != static_cast<std::size_t>(demand.sources)) {
    return NoGroup(plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrFormat("%d hosts for %d sources; name the worker of each source's "
                                   "process, or none",
                                   hosts.size(), demand.sources));
  }
  for (auto at = hosts.begin(); at != hosts.end(); ++at) {
    if (at->empty() || std::find(hosts.begin(), at, *at) == at) continue;
    return NoGroup(plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrFormat("worker %s is named as the host of two sources, and shares its "
                                   "rank with one",
                                   *at));
  }
  return absl::OkStatus();
}

absl::Status CheckDemand(const Plan& plan, const CollectiveDemand& demand) {
  if (demand.sources < 1 || demand.sources > kGroupSourcesMax) {
    return NoGroup(
        plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("a group has 1 to %d sources, not %d", kGroupSourcesMax, demand.sources));
  }
  SY_RETURN_IF_ERROR(CheckHosts(plan, demand));
  const bool is_normal = demand.mode == DispatchMode::kNormal;
  const bool has_sums = demand.combine_dtype == DispatchDtype::kBf16 ||
                        (demand.combine_dtype == DispatchDtype::kFp8 && is_normal);
  if (!has_sums) {
    return NoGroup(
        plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("answers come back as bf16, in normal mode also as fp8, not as "
                        "%s in %s",
                        DispatchDtypeName(demand.combine_dtype), DispatchModeName(demand.mode)));
  }
  const std::int32_t tokens_max = GroupTokensMax(plan, demand);
  const bool in_rounds = is_normal && demand.max_tokens > tokens_max;
  if (tokens_max > 0 && !in_rounds && (demand.max_tokens < 1 || demand.max_tokens > tokens_max)) {
    return NoGroup(plan, absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
                   absl::StrFormat("max_tokens %d; a step of this group has 1 to %d of a source",
                                   demand.max_tokens, tokens_max));
  }
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  if (workers == 0 || plan.shape.experts % workers != 0) {
    return NoGroup(
        plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("%d experts do not divide by %d workers", plan.shape.experts, workers));
  }
  return absl::OkStatus();
}

absl::Status CheckKinds(const Plan& plan, const CollectiveDemand& demand) {
  for (const PlanWorker& worker : plan.workers) {
    if (worker.device == demand.source) continue;
    return Unsupported(
        plan,
        absl::StrFormat("worker %s is of kind %s and the source of kind %s; a group is of "
                        "one kind",
                        worker.id, DeviceKindName(worker.device), DeviceKindName(demand.source)));
  }
  return absl::OkStatus();
}

// Beyond these the devices have no kernels.
absl::Status CheckShape(const Plan& plan, const CollectiveDemand& demand) {
  const GroupLimits& limits = GroupLimitsOf(demand.source);
  const MoeShape& shape = plan.shape;
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  const struct {
    absl::string_view what;
    std::int32_t have;
    std::int32_t most;
  } bounds[] = {{"ranks", GroupRanks(plan, demand.sources, demand.hosts), limits.ranks_max},
                {"experts of a worker", shape.experts / workers, limits.experts_max},
                {"experts of a token", shape.top_k, limits.top_k_max},
                {"values of a row", shape.hidden, limits.hidden_max}};
  for (const auto& bound : bounds) {
    if (bound.have <= bound.most) continue;
    return Unsupported(
        plan, absl::StrFormat("%d %s, and a group of devices of kind %s has up to %d", bound.have,
                              bound.what, DeviceKindName(demand.source), bound.most));
  }
  if (shape.hidden % limits.hidden_unit == 0) return absl::OkStatus();
  return Unsupported(
      plan,
      absl::StrFormat("rows of %d values; a group of devices of kind %s takes multiples of %d",
                      shape.hidden, DeviceKindName(demand.source), limits.hidden_unit));
}

absl::Status CheckPlacement(const Plan& plan, const LayerPlacement& layer) {
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  const std::int32_t of_worker = plan.shape.experts / workers;
  std::vector<bool> used(static_cast<std::size_t>(plan.shape.experts), false);
  std::size_t next = 0;  // sorted by (worker, slot)
  for (const PhysicalExpert& at : layer.experts) {
    const auto place = static_cast<std::int32_t>(next);
    const bool even = at.worker.value == place / of_worker && at.slot.value == place % of_worker;
    if (!even || next >= used.size() || used[static_cast<std::size_t>(at.expert.value)]) break;
    used[static_cast<std::size_t>(at.expert.value)] = true;
    ++next;
  }
  if (next == used.size() && layer.experts.size() == next) return absl::OkStatus();
  return Unsupported(plan,
                     absl::StrFormat("layer %d does not have %d experts on each worker, once each",
                                     layer.layer.value, of_worker));
}

absl::StatusOr<std::vector<LayerForm>> FormsOf(const Plan& plan, const CollectiveDemand& demand) {
  const Edge edge{.source = demand.source, .worker = demand.source};
  std::vector<LayerForm> forms;
  for (const LayerPlacement& layer : plan.layers) {
    const DispatchConfig* config = plan.FindConfig(layer.layer, demand.phase, edge);
    if (config == nullptr) {
      return Unsupported(plan, absl::StrFormat("layer %d has no config for phase %s",
                                               layer.layer.value, PhaseName(demand.phase)));
    }
    forms.push_back(
        {.layer = layer.layer, .wire = config->format(), .global_scale = config->global_scale});
  }
  if (forms.empty()) return Unsupported(plan, "it has no MoE layers");
  std::sort(forms.begin(), forms.end(),
            [](const LayerForm& a, const LayerForm& b) { return a.layer < b.layer; });
  return forms;
}

// Only a device's kernels for many tokens have sums in FP8; they take few tokens, too.
std::int32_t TokensAtOnce(const Plan& plan, const CollectiveDemand& demand) {
  const std::int32_t least = demand.combine_dtype == DispatchDtype::kFp8
                                 ? GroupLimitsOf(demand.source).fp8_sums_tokens_min
                                 : 1;
  return std::min(std::max(demand.max_tokens, least), GroupTokensMax(plan, demand));
}

WireFormat LargestOf(const std::vector<LayerForm>& forms, std::int32_t hidden) {
  const auto bytes = [hidden](const LayerForm& form) {
    return RowBytesOf(form.wire, hidden).total();
  };
  return std::max_element(
             forms.begin(), forms.end(),
             [&](const LayerForm& a, const LayerForm& b) { return bytes(a) < bytes(b); })
      ->wire;
}

}  // namespace

std::vector<std::int32_t> GroupPlaces(const Plan& plan, const LayerPlacement& layer) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(plan.shape.experts), -1);
  bool in_order = true;
  for (std::size_t place = 0; place < layer.experts.size(); ++place) {
    const std::int32_t expert = layer.experts[place].expert.value;
    places.at(static_cast<std::size_t>(expert)) = static_cast<std::int32_t>(place);
    in_order &= expert == static_cast<std::int32_t>(place);
  }
  if (in_order) places.clear();
  return places;
}

std::int32_t CollectiveGroup::ranks() const {
  return workers + static_cast<std::int32_t>(
                       std::count_if(source_ranks.begin(), source_ranks.end(),
                                     [this](std::int32_t rank) { return rank >= workers; }));
}

std::vector<std::int32_t> SourceRanks(const Plan& plan, std::int32_t sources,
                                      const std::vector<std::string>& hosts) {
  const std::vector<PlanWorker>& workers = plan.workers;
  auto next = static_cast<std::int32_t>(workers.size());
  std::vector<std::int32_t> ranks;
  // The number comes from a request and may be anything; more are refused elsewhere.
  const auto count = static_cast<std::size_t>(std::clamp(sources, 0, kGroupSourcesMax));
  for (std::size_t s = 0; s < count; ++s) {
    const auto host = s >= hosts.size() || hosts[s].empty()
                          ? workers.end()
                          : std::find_if(workers.begin(), workers.end(),
                                         [&](const PlanWorker& of) { return of.id == hosts[s]; });
    const bool hosted = host != workers.end();
    ranks.push_back(hosted ? static_cast<std::int32_t>(host - workers.begin()) : next++);
  }
  return ranks;
}

std::int32_t GroupRanks(const Plan& plan, std::int32_t sources,
                        const std::vector<std::string>& hosts) {
  auto ranks = static_cast<std::int32_t>(plan.workers.size());
  for (const std::int32_t rank : SourceRanks(plan, sources, hosts)) {
    ranks = std::max(ranks, rank + 1);
  }
  return ranks;
}

std::int32_t GroupTokensMax(const Plan& plan, const CollectiveDemand& demand) {
  const GroupLimits& limits = GroupLimitsOf(demand.source);
  const std::int64_t choices =
      std::int64_t{GroupRanks(plan, demand.sources, demand.hosts)} * std::max(plan.shape.top_k, 1);
  const bool normal = demand.mode == DispatchMode::kNormal;
  const std::int64_t pairs_max = normal ? limits.normal_pairs_max : limits.pairs_max;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(normal ? limits.normal_tokens_max : limits.tokens_max,
                             pairs_max / std::max<std::int64_t>(choices, 1)));
}

absl::StatusOr<CollectiveGroup> ResolveCollective(const Plan& plan,
                                                  const CollectiveDemand& demand) {
  SY_RETURN_IF_ERROR(CheckDemand(plan, demand));
  SY_RETURN_IF_ERROR(CheckKinds(plan, demand));
  SY_RETURN_IF_ERROR(CheckShape(plan, demand));
  for (const LayerPlacement& layer : plan.layers) {
    SY_RETURN_IF_ERROR(CheckPlacement(plan, layer));
  }
  SY_ASSIGN_OR_RETURN(std::vector<LayerForm> forms, FormsOf(plan, demand));
  const WireFormat wire = LargestOf(forms, plan.shape.hidden);
  return CollectiveGroup{.shape = plan.shape,
                         .workers = static_cast<std::int32_t>(plan.workers.size()),
                         .source_ranks = SourceRanks(plan, demand.sources, demand.hosts),
                         .tokens_max = TokensAtOnce(plan, demand),
                         .wire = wire,
                         .forms = std::move(forms),
                         .combine_dtype = demand.combine_dtype,
                         .row_of_each_expert = demand.mode == DispatchMode::kLowLatency};
}

}  // namespace switchyard
