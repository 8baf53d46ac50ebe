#include "core/resolve/collective_group.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status NoGroup(const Plan& plan, absl::StatusCode code, Reason reason,
                     absl::string_view why) {
  return MakeError(code, reason,
                   absl::StrFormat("deployment %s cannot serve a collective session: %s; open the "
                                   "session with binding p2p",
                                   plan.deployment, why),
                   {{"deployment", plan.deployment}});
}

absl::Status Unsupported(const Plan& plan, absl::string_view why) {
  return NoGroup(plan, absl::StatusCode::kFailedPrecondition, Reason::kUnsupported, why);
}

absl::Status CheckDemand(const Plan& plan, const CollectiveDemand& demand) {
  if (demand.sources < 1 || demand.sources > kGroupSourcesMax) {
    return NoGroup(
        plan, absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("a group has 1 to %d sources, not %d", kGroupSourcesMax, demand.sources));
  }
  if (demand.max_tokens < 1 || demand.max_tokens > kGroupTokensMax) {
    return NoGroup(plan, absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens,
                   absl::StrFormat("max_tokens %d; a step of a group has 1 to %d of a source",
                                   demand.max_tokens, kGroupTokensMax));
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

absl::Status CheckPlacement(const Plan& plan, const LayerPlacement& layer) {
  const auto workers = static_cast<std::int32_t>(plan.workers.size());
  const std::int32_t of_worker = plan.shape.experts / workers;
  std::int32_t next = 0;  // sorted by (worker, slot)
  for (const PhysicalExpert& at : layer.experts) {
    const bool in_order = at.expert.value == next && at.worker.value == next / of_worker &&
                          at.slot.value == next % of_worker;
    if (!in_order) break;
    ++next;
  }
  if (next == plan.shape.experts && layer.experts.size() == static_cast<std::size_t>(next)) {
    return absl::OkStatus();
  }
  return Unsupported(plan, absl::StrFormat("layer %d does not have %d experts on each worker, in "
                                           "order and once each",
                                           layer.layer.value, of_worker));
}

absl::StatusOr<WireFormat> WireOf(const Plan& plan, const CollectiveDemand& demand) {
  const Edge edge{.source = demand.source, .worker = demand.source};
  std::optional<WireFormat> wire;
  for (const LayerPlacement& layer : plan.layers) {
    const DispatchConfig* config = plan.FindConfig(layer.layer, demand.phase, edge);
    if (config == nullptr) {
      return Unsupported(plan, absl::StrFormat("layer %d has no config for phase %s",
                                               layer.layer.value, PhaseName(demand.phase)));
    }
    if (config->global_scale != 1.0F) {
      return Unsupported(plan, absl::StrFormat("rows of layer %d have a global scale of their own",
                                               layer.layer.value));
    }
    if (!wire.has_value()) wire = config->format();
    if (*wire == config->format()) continue;
    return Unsupported(plan,
                       absl::StrFormat("rows of layer %d travel as %s and those of layer %d as %s",
                                       plan.layers.front().layer.value, WireFormatName(*wire),
                                       layer.layer.value, WireFormatName(config->format())));
  }
  if (!wire.has_value()) return Unsupported(plan, "it has no MoE layers");
  return *wire;
}

}  // namespace

absl::StatusOr<CollectiveGroup> ResolveCollective(const Plan& plan,
                                                  const CollectiveDemand& demand) {
  SY_RETURN_IF_ERROR(CheckDemand(plan, demand));
  SY_RETURN_IF_ERROR(CheckKinds(plan, demand));
  for (const LayerPlacement& layer : plan.layers) {
    SY_RETURN_IF_ERROR(CheckPlacement(plan, layer));
  }
  SY_ASSIGN_OR_RETURN(const WireFormat wire, WireOf(plan, demand));
  return CollectiveGroup{.shape = plan.shape,
                         .workers = static_cast<std::int32_t>(plan.workers.size()),
                         .sources = demand.sources,
                         .tokens_max = demand.max_tokens,
                         .wire = wire,
                         .row_of_each_expert = demand.mode == DispatchMode::kLowLatency};
}

}  // namespace switchyard
