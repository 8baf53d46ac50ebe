#include "ctl/commands.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/describe.h"
#include "ctl/explain.h"
#include "ctl/inspection.h"
#include "ctl/inspection_text.h"
#include "ctl/json.h"
#include "ctl/lifecycle.h"
#include "ctl/run.h"
#include "ctl/tables.h"
#include "ctl/waiting.h"
#include "report/plan_summary.h"
#include "report/text_table.h"
#include "services/config/config_file.h"
#include "services/config/yaml_text.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/version.h"

namespace switchyard::ctl {
namespace {

// Lists the known names, because a wrong name is mostly a typo.
absl::Status NoSuch(const std::string& kind, const std::string& name,
                    const std::vector<std::string>& known) {
  const std::string available =
      known.empty() ? "there are none" : absl::StrCat("known: ", absl::StrJoin(known, ", "));
  return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                   absl::StrCat("unknown ", kind, " ", name, "; ", available), {{kind, name}});
}

// The effect of applying `after` to the deployment in its state before.
std::string ResultWord(const absl::StatusOr<v1::GetDeploymentResponse>& before,
                       const v1::Deployment& after, bool dry_run) {
  if (!before.ok()) return dry_run ? "would be created" : "created";
  // Compares specifications, not states: a state may change at any time without an apply.
  const auto specified = [](const v1::Deployment& deployment) {
    return std::pair(deployment.spec().SerializeAsString(),
                     deployment.coordinator_defaults().SerializeAsString());
  };
  // The coordinator's defaults count: the same file may mean another deployment after they changed.
  const bool same = specified(before->deployment()) == specified(after);
  if (same) return dry_run ? "would not change" : "unchanged";
  return dry_run ? "would be changed" : "changed";
}

// The reasons in `config` that concern the wire dtype.
std::string WhyText(const DispatchConfig& config) {
  std::vector<absl::string_view> steps;
  for (const std::string& line : config.trail) {
    absl::string_view step = line;
    // The other lines of the trail are about modes and bytes, which the table shows.
    if (absl::ConsumePrefix(&step, "wire dtype ")) steps.push_back(step);
  }
  return absl::StrJoin(steps, "; then ");
}

// The result of planning for the available workers: the configs, the reason why there are none, and
// the workers that would be left out.
absl::StatusOr<std::string> Findings(const v1::ApplyDeploymentResponse& response,
                                     std::size_t width) {
  const v1::Deployment& checked = response.deployment();
  Decoder at("ApplyDeploymentResponse");
  std::vector<DispatchConfig> configs;
  at.Each("configs", response.configs(), &configs,
          [&at](const v1::DispatchConfig& in, DispatchConfig* out) { Decode(at, in, out); });
  if (!at.ok()) return at.status();
  TextTable table({"LAYERS", "PHASE", "EDGE", "MODE", "WIRE", "SCHEME", "WHY"});
  for (const ConfigRow& row : SummarizeConfigs(configs)) {
    table.Add({row.layers, std::string(PhaseName(row.config.phase)), EdgeText(row.config.edge),
               std::string(DispatchModeName(row.config.mode)),
               std::string(WireFormatName(row.config.format())),
               QuantSchemeInfoOf(row.config.scheme).name, WhyText(row.config)});
  }
  std::vector<std::string> lines;
  if (checked.has_problem()) lines.push_back(checked.problem().message());
  for (const std::string& line : checked.left_out()) {
    lines.push_back(absl::StrCat("would be left out: ", line));
  }
  for (const v1::DispatchWarning& warning : response.warnings()) {
    lines.push_back(absl::StrCat("warning: ", warning.text()));
  }
  return absl::StrCat("\n", checked.spec().name(), ": ", checked.activity(), "\n",
                      Bullets(lines, "  ", width),
                      table.rows() > 0 ? table.Print("  ", width) : "");
}

// Waits, for as long as is left until `end`, until the deployment serves as it was applied, and
// replaces what is known of it.
absl::Status WaitForApplied(const Run& run, TimePoint end, v1::Deployment* deployment) {
  Waiting waiting = run.waiting();
  waiting.timeout = std::max(Duration{}, end - std::chrono::steady_clock::now());
  const std::string name = deployment->spec().name();
  const absl::Status status = WaitForDeployment(waiting, name, Condition::kServing);
  const auto now = run.coordinator.Deployment(name);
  if (now.ok()) *deployment = now->deployment();
  return status;
}

absl::Status Apply(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const std::vector<v1::DeploymentSpec> specs, ReadDeployments(run.line.file));
  const std::string file = NameOfFile(run.line.file);
  // A dry run creates nothing, so there is no state to show.
  TextTable table(run.line.dry_run
                      ? std::vector<std::string>{"NAME", "RESULT"}
                      : std::vector<std::string>{"NAME", "RESULT", "STATE", "ACTIVITY"});
  std::string findings;
  Json list = Json::array();
  // Stop at the first deployment that is refused; those before it stay applied and are listed.
  absl::Status status;
  const TimePoint end = std::chrono::steady_clock::now() + run.line.wait_timeout;
  for (const v1::DeploymentSpec& spec : specs) {
    // Asked before applying; afterwards the response no longer shows whether anything changed.
    const absl::StatusOr<v1::GetDeploymentResponse> before =
        run.coordinator.Deployment(spec.name());
    absl::StatusOr<v1::ApplyDeploymentResponse> applied =
        run.coordinator.Apply(spec, run.line.dry_run);
    if (!applied.ok()) {
      status.Update(Annotate(WithMetadata(applied.status(), "deployment", spec.name()), file));
      break;
    }
    v1::Deployment& after = *applied->mutable_deployment();
    const std::string result = ResultWord(before, after, run.line.dry_run);
    if (run.line.wait && RefusalOf(after).ok()) {
      status.Update(Annotate(WaitForApplied(run, end, &after), file));
    }
    table.Add({after.spec().name(), result, EnumWord(after.state()), after.activity()});
    list.push_back({{"result", result}, {"deployment", ToJson(after)}});
    // The first refusal decides the exit code; the table shows all.
    status.Update(Annotate(RefusalOf(after), file));
    // Printed here as well, because an operator may not have access to the coordinator's log.
    for (const v1::DispatchWarning& warning : applied->warnings()) {
      if (!run.line.dry_run) {
        absl::StrAppend(&findings, "warning: ", after.spec().name(), ": ", warning.text(), "\n");
      }
    }
    list.back()["warnings"] = ToJson(*applied)["warnings"];
    if (!run.line.dry_run) continue;
    SY_ASSIGN_OR_RETURN(const std::string found, Findings(*applied, run.screen.width));
    findings += found;
    list.back()["configs"] = ToJson(*applied)["configs"];
  }
  if (run.json()) {
    if (!list.empty()) *out += Print({{"applied", list}});
  } else if (table.rows() > 0) {
    *out += table.Print("", run.screen.width) + findings;
  }
  return status;
}

// Groups configs by layer, so that a script need not join placements and configs:
// {"deployment", "epoch", "layers": [{"layer", "experts", "configs"}]}
Json LayersJson(const v1::Plan& plan) {
  Json layers = Json::array();
  for (const v1::LayerPlacement& placement : plan.layers()) {
    Json layer = ToJson(placement);
    layer["configs"] = Json::array();
    for (const v1::DispatchConfig& config : plan.configs()) {
      if (config.layer() == placement.layer()) layer["configs"].push_back(ToJson(config));
    }
    layers.push_back(std::move(layer));
  }
  return {{"deployment", plan.deployment()}, {"epoch", plan.epoch()}, {"layers", layers}};
}

absl::Status GetOfPlan(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const v1::GetPlanResponse proto, run.coordinator.Plan(run.line.deployment));
  if (run.json()) {
    *out += Print(run.line.kind == Kind::kLayers ? LayersJson(proto.plan()) : ToJson(proto));
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(const HashedPlan plan, FromProto(proto));
  *out += run.line.kind == Kind::kLayers ? LayersTable(plan.plan) : PlanText(plan.plan, plan.hash);
  return absl::OkStatus();
}

absl::Status GetOnce(const Run& run, std::string* out) {
  switch (run.line.kind) {
    case Kind::kDeployments: {
      SY_ASSIGN_OR_RETURN(const auto list, run.coordinator.Deployments());
      *out += run.Show(
          list, [&](const auto& message) { return DeploymentsTable(message, run.screen.width); });
      return absl::OkStatus();
    }
    case Kind::kModels: {
      SY_ASSIGN_OR_RETURN(const auto list, run.coordinator.Models());
      *out += run.Show(list, ModelsTable);
      return absl::OkStatus();
    }
    case Kind::kWorkers: {
      SY_ASSIGN_OR_RETURN(const auto list, run.coordinator.Workers());
      *out += run.Show(list, WorkersTable);
      return absl::OkStatus();
    }
    default:
      return GetOfPlan(run, out);
  }
}

// Whenever the list looks different. Compared as tables: JSON has numbers that change all the time.
absl::Status Watch(const Run& run) {
  const Screen as_table{OutputFormat::kTable, run.screen.width};
  std::string shown;
  for (;;) {
    std::string table;
    std::string text;
    absl::Status status = GetOnce({run.line, run.coordinator, as_table}, &table);
    if (status.ok() && table != shown) status = GetOnce(run, &text);
    // The coordinator may be restarting, and the watch goes on then.
    if (!status.ok() && ReasonOf(status) != Reason::kCoordinatorLost) return status;
    if (!status.ok() && run.screen.viewer.tell)
      run.screen.viewer.tell(std::string(status.message()));
    if (status.ok() && table != shown) {
      const bool apart = !shown.empty() && !run.json();
      if (!run.screen.viewer.live(apart ? absl::StrCat("\n", text) : text)) return absl::OkStatus();
      shown = std::move(table);
    }
    Pause();
  }
}

absl::Status Get(const Run& run, std::string* out) {
  return run.line.watch && run.screen.viewer.live ? Watch(run) : GetOnce(run, out);
}

absl::Status DescribeDeployment(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Deployment(run.line.name));
  *out += run.Show(response.deployment(), [&](const v1::Deployment& deployment) {
    return DescribeDeploymentText(deployment, run.screen.width);
  });
  return absl::OkStatus();
}

absl::Status DescribeModel(const Run& run, std::string* out) {
  // The coordinator has no call for a single model, and the list is short.
  SY_ASSIGN_OR_RETURN(const auto models, run.coordinator.Models());
  std::vector<std::string> known;
  for (const v1::Model& model : models.models()) {
    if (model.name() != run.line.name) {
      known.push_back(model.name());
      continue;
    }
    std::vector<v1::Deployment> deployments;
    for (const std::string& name : model.deployments()) {
      SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Deployment(name));
      deployments.push_back(response.deployment());
    }
    *out += run.Show(model, [&](const v1::Model& message) {
      return DescribeModelText(message, deployments, run.screen.width);
    });
    return absl::OkStatus();
  }
  return NoSuch("model", run.line.name, known);
}

absl::Status DescribeWorker(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const auto workers, run.coordinator.Workers());
  std::vector<std::string> known;
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.id() != run.line.name) {
      known.push_back(worker.id());
      continue;
    }
    std::vector<Plan> plans;
    for (const v1::ResidentEpoch& epoch : worker.resident()) {
      // The plan of a prepared epoch is not known to the coordinator's readers yet.
      if (!epoch.committed()) continue;
      // The deployment may have been replaced since the list was read; then there is no plan to
      // show.
      const absl::StatusOr<v1::GetPlanResponse> proto = run.coordinator.Plan(epoch.deployment());
      if (!proto.ok() || proto->plan().epoch() != epoch.epoch()) continue;
      SY_ASSIGN_OR_RETURN(HashedPlan plan, FromProto(*proto));
      plans.push_back(std::move(plan.plan));
    }
    *out += run.Show(worker,
                     [&](const v1::Worker& message) { return DescribeWorkerText(message, plans); });
    return absl::OkStatus();
  }
  return NoSuch("worker", run.line.name, known);
}

// Why there are only hypothetical decisions to show.
std::string WhyHypotheses(const CommandLine& line, const v1::ExplainLayerResponse& response) {
  const std::string of_edge =
      line.edge_source.empty() ? ""
                               : absl::StrCat(" edge ", line.edge_source, " -> ", line.edge_worker);
  if (response.epoch() != 0) return absl::StrCat("the plan has no", of_edge);
  return absl::StrCat("there is no plan (", response.activity(), ") and no ",
                      of_edge.empty() ? "worker" : absl::StrCat("worker for", of_edge));
}

absl::Status OneLayer(const Run& run, std::string* out) {
  v1::ExplainLayerRequest request;
  request.set_deployment(run.line.deployment);
  request.set_layer(run.line.layer);
  request.set_phase(run.line.phase);
  if (!run.line.edge_source.empty()) {
    request.mutable_edge()->set_source(run.line.edge_source);
    request.mutable_edge()->set_worker(run.line.edge_worker);
  }
  SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Explain(request));
  const bool explains = run.line.verb == Verb::kExplain;
  // 'describe' shows the plan, so it needs one. 'explain' can also show what would be planned.
  if (response.epoch() == 0 && !explains) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     absl::StrCat("there is no plan yet: ", response.activity(),
                                  "; 'syctl explain layer ", run.line.layer, "' shows more"));
  }
  if (run.json()) {
    *out += Print(ToJson(WithoutPages(response)));
    return absl::OkStatus();
  }
  if (response.hypothetical_size() > 0) {
    SY_ASSIGN_OR_RETURN(const std::vector<Hypothesis> hypotheses, HypothesesFromProto(response));
    *out += HypothesesText(hypotheses, WhyHypotheses(run.line, response), run.screen.width);
    return absl::OkStatus();
  }
  if (response.epoch() == 0) {
    *out += ExplainWithoutPlanText(response);
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(const Plan layer, FromProto(response));
  *out += explains ? ExplainLayerText(response, layer, run.screen.width) : DescribeLayerText(layer);
  return absl::OkStatus();
}

absl::Status Describe(const Run& run, std::string* out) {
  switch (run.line.kind) {
    case Kind::kDeployments:
      return DescribeDeployment(run, out);
    case Kind::kModels:
      return DescribeModel(run, out);
    case Kind::kWorkers:
      return DescribeWorker(run, out);
    default:
      return OneLayer(run, out);
  }
}

absl::Status InspectModel(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const Inspection inspection,
                      Inspect({run.line.path, run.line.only_layer, run.line.worker_kind}));
  *out +=
      run.json() ? Print(InspectionJson(inspection)) : InspectionText(inspection, run.screen.width);
  return CheckServable(inspection);
}

absl::Status Version(const Run& run, std::string* out) {
  Json json{{"client", {{"version", kProductVersion}}}};
  // The client's version is printed first, so that it appears even if the coordinator is down.
  if (!run.json()) absl::StrAppend(out, "syctl        ", kProductVersion, "\n");
  if (!run.line.client_only) {
    SY_ASSIGN_OR_RETURN(const v1::GetVersionResponse version, run.coordinator.Version());
    json["coordinator"] = ToJson(version);
    json["coordinator"]["endpoint"] = run.coordinator.target();
    if (!run.json()) {
      absl::StrAppend(out, "coordinator  ", version.version(), " at ", run.coordinator.target(),
                      ", protocol v", version.protocol_version(), ", frames v",
                      version.frame_version(), ", incarnation ", version.incarnation(), "\n");
    }
  }
  if (run.json()) *out += Print(json);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCommand(const CommandLine& line, CoordinatorClient& coordinator,
                        const Screen& screen, std::string* out) {
  const Run run{line, coordinator, screen};
  switch (line.verb) {
    case Verb::kApply:
      return Apply(run, out);
    case Verb::kDelete:
      return DeleteDeployment(run, out);
    case Verb::kCordon:
    case Verb::kUncordon:
    case Verb::kDrain:
      return SetDuty(run, out);
    case Verb::kWait:
      return WaitForObject(run, out);
    case Verb::kGet:
      return Get(run, out);
    case Verb::kDescribe:
      return Describe(run, out);
    case Verb::kExplain:
      return OneLayer(run, out);
    case Verb::kModelInspect:
      return InspectModel(run, out);
    case Verb::kVersion:
      return Version(run, out);
  }
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
