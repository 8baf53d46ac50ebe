#include "ctl/output/tables.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/units.h"
#include "report/plan_summary.h"
#include "report/text_table.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"
#include "services/grpc/grpc_status.h"

namespace switchyard::ctl {
namespace {

constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

std::string EpochText(std::uint64_t epoch) { return epoch == 0 ? "" : absl::StrCat(epoch); }

std::string Text(absl::string_view view) { return std::string(view); }

// "local@3 (prepared)"
std::string ResidentText(const v1::ResidentEpoch& resident) {
  return absl::StrCat(resident.deployment(), "@", resident.epoch(),
                      resident.committed() ? "" : " (prepared)");
}

// How rows of one layer travel in one phase, over all edges. Edges usually agree, so equal
// neighbors are shown once.
std::string PhaseCell(const Plan& plan, LayerId layer, Phase phase) {
  std::vector<std::string> ways;
  for (const DispatchConfig& config : plan.configs) {
    if (config.layer != layer || config.phase != phase) continue;
    const std::string way = HowText(config);
    // Configs ascend by edge, so equal ones of most plans are neighbors.
    if (ways.empty() || ways.back() != way) ways.push_back(way);
  }
  return absl::StrJoin(ways, " / ");
}

std::string ConfigsTable(const Plan& plan) {
  TextTable table({"LAYERS", "PHASE", "EDGE", "MODE", "WIRE", "COMBINE", "SCHEME", "MAX TOKENS"});
  for (const ConfigRow& row : SummarizeConfigs(plan.configs)) {
    const DispatchConfig& config = row.config;
    const std::int32_t max_tokens = config.max_tokens_per_step;
    table.Add({row.layers, Text(PhaseName(config.phase)), EdgeText(config.edge),
               Text(DispatchModeName(config.mode)), Text(WireFormatName(config.format())),
               Text(DispatchDtypeName(config.combine_dtype)),
               Text(QuantSchemeInfoOf(config.scheme).name),
               max_tokens == 0 ? "" : absl::StrCat(max_tokens)});
  }
  return table.Print();
}

}  // namespace

std::string HowText(const DispatchConfig& config) {
  return absl::StrCat(DispatchModeName(config.mode), " ", WireFormatName(config.format()));
}

absl::StatusOr<HashedPlan> FromProto(const v1::GetPlanResponse& proto) {
  Decoder at("GetPlanResponse");
  HashedPlan out;
  at.Sub("plan", proto.has_plan(), [&] { Decode(at, proto.plan(), &out.plan); });
  at.Digest("plan_hash", proto.plan_hash(), &out.hash);
  return at.Finish(std::move(out));
}

std::string DeploymentsTable(const v1::ListDeploymentsResponse& list, std::size_t width,
                             bool wide) {
  if (list.deployments().empty()) {
    return "There are no deployments; 'syctl apply -f FILE' creates one.\n";
  }
  std::vector<std::string> heads{"NAME", "MODEL", "STATE", "EPOCH", "SESSIONS"};
  if (wide) heads.insert(heads.end(), {"REVISION", "MIN WORKERS", "CHECKPOINT"});
  heads.emplace_back("ACTIVITY");
  TextTable table(std::move(heads));
  for (const v1::Deployment& item : list.deployments()) {
    std::string activity = item.activity();
    if (item.has_problem()) {
      const absl::Status problem = StatusFromProto(item.problem());
      // The problem goes below the activity, so that a deployment still takes one row.
      absl::StrAppend(&activity, activity.empty() ? "" : "\n", ReasonName(ReasonOf(problem)), ": ",
                      problem.message());
    }
    // The model that serves; the activity says when another one is coming.
    const std::string& model =
        item.has_serving_model() ? item.serving_model().name() : item.spec().model();
    std::vector<std::string> cells{item.spec().name(), model, EnumWord(item.state()),
                                   EpochText(item.committed_epoch()),
                                   absl::StrCat(item.sessions())};
    if (wide) {
      cells.insert(cells.end(),
                   {EpochText(item.serving_revision()), absl::StrCat(item.spec().min_workers()),
                    item.spec().checkpoint()});
    }
    cells.push_back(std::move(activity));
    table.Add(std::move(cells));
  }
  return table.Print("", width);
}

std::string ModelsTable(const v1::ListModelsResponse& list) {
  if (list.models().empty()) {
    return "There are no models; 'syctl apply -f FILE' serves one.\n";
  }
  TextTable table({"NAME", "MOE LAYERS", "EXPERTS", "TOP-K", "HIDDEN", "INTERMEDIATE",
                   "DEPLOYMENTS", "CHECKPOINT"});
  for (const v1::Model& item : list.models()) {
    const v1::MoeShape& shape = item.shape();
    table.Add({item.name(), Ranges({item.layers().begin(), item.layers().end()}),
               absl::StrCat(shape.experts()), absl::StrCat(shape.top_k()),
               absl::StrCat(shape.hidden()), absl::StrCat(shape.intermediate()),
               absl::StrJoin(item.deployments(), ","), item.checkpoint()});
  }
  return table.Print();
}

std::string WorkersTable(const v1::ListWorkersResponse& list, bool wide) {
  if (list.workers().empty()) {
    return "There are no workers; 'switchyard-worker --coordinator HOST:PORT --id NAME' adds "
           "one.\n";
  }
  std::vector<std::string> heads{"ID",         "STATE",   "DEVICE", "KERNEL",  "RELEASE",
                                 "TRANSPORTS", "EXPERTS", "HOLDS",  "ENDPOINT"};
  if (wide) heads.insert(heads.end(), {"POOL", "PROFILE", "WIRE", "WEIGHTS MAX", "PROBLEM"});
  TextTable table(std::move(heads));
  for (const v1::Worker& item : list.workers()) {
    const auto resident = [](std::string* out, const v1::ResidentEpoch& epoch) {
      absl::StrAppend(out, ResidentText(epoch));
    };
    const v1::CapabilitySet& can = item.capabilities();
    std::vector<std::string> cells{item.id(),
                                   EnumWord(item.state()),
                                   EnumWord(can.device()),
                                   can.kernel_family(),
                                   item.release().empty() ? "-" : item.release(),
                                   absl::StrJoin(can.transports(), ","),
                                   absl::StrCat(item.experts()),
                                   absl::StrJoin(item.resident(), ", ", resident),
                                   item.endpoint()};
    if (wide) {
      const auto dtype = [](std::string* out, int value) {
        *out += EnumWord(static_cast<v1::DispatchDtype>(value));
      };
      cells.insert(cells.end(),
                   {item.pool(), can.device_profile(), absl::StrJoin(can.wire_dtypes(), ",", dtype),
                    can.weight_bytes_max() == 0
                        ? ""
                        : BytesText(static_cast<std::int64_t>(can.weight_bytes_max())),
                    item.problem()});
    }
    table.Add(std::move(cells));
  }
  return table.Print();
}

std::string LayersTable(const Plan& plan) {
  TextTable table({"LAYER", "EXPERTS", "COPIES", "WORKERS", "PREFILL", "DECODE", "MIXED"});
  for (const LayerPlacement& layer : plan.layers) {
    std::set<ExpertId> experts;
    std::set<WorkerOrdinal> workers;
    // Logical experts and copies differ as soon as experts are replicated.
    for (const PhysicalExpert& expert : layer.experts) {
      experts.insert(expert.expert);
      workers.insert(expert.worker);
    }
    std::vector<std::string> cells{absl::StrCat(layer.layer.value), absl::StrCat(experts.size()),
                                   absl::StrCat(layer.experts.size()),
                                   absl::StrCat(workers.size())};
    for (const Phase phase : kPhases) cells.push_back(PhaseCell(plan, layer.layer, phase));
    table.Add(std::move(cells));
  }
  return table.Print();
}

std::string PlanText(const Plan& plan, const PlanHash& hash) {
  TextTable placement({"WORKER", "DEVICE", "KERNEL", "LAYERS", "EXPERTS", "ENDPOINT"});
  for (const PlacementRow& row : SummarizePlacement(plan)) {
    const PlanWorker& worker = plan.workers[static_cast<std::size_t>(row.worker.value)];
    placement.Add({worker.id, Text(DeviceKindName(worker.device)), worker.kernel_family, row.layers,
                   row.experts, worker.endpoint});
  }
  return absl::StrFormat(
      "deployment %s, model %s, epoch %d\n"
      "plan %s\n"
      "%d experts, top-k %d, hidden %d, intermediate %d\n\n%s\n%s",
      plan.deployment, plan.model, plan.epoch.value, hash.ToHex(), plan.shape.experts,
      plan.shape.top_k, plan.shape.hidden, plan.shape.intermediate, placement.Print(),
      ConfigsTable(plan));
}

}  // namespace switchyard::ctl
