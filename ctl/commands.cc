#include "ctl/commands.h"

#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/product_version.h"
#include "core/base/status_macros.h"
#include "core/cli/exit_code.h"
#include "ctl/apply.h"
#include "ctl/config.h"
#include "ctl/describe.h"
#include "ctl/diff.h"
#include "ctl/doctor/doctor.h"
#include "ctl/errors.h"
#include "ctl/explain.h"
#include "ctl/get.h"
#include "ctl/inspection.h"
#include "ctl/inspection_text.h"
#include "ctl/json.h"
#include "ctl/lifecycle.h"
#include "ctl/output/tables.h"
#include "ctl/run.h"
#include "ctl/top.h"
#include "ctl/traces/traces.h"
#include "ctl/worker_client.h"

namespace switchyard::ctl {
namespace {

absl::Status DescribeDeployment(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Deployment(run.line.name));
  const v1::Deployment& found = response.deployment();
  v1::ListRevisionsResponse revisions;
  const v1::Revision* serving = nullptr;
  if (found.serving_revision() != 0 && found.serving_revision() != found.revision()) {
    SY_ASSIGN_OR_RETURN(revisions, run.coordinator.Revisions(run.line.name));
    for (const v1::Revision& one : revisions.revisions()) {
      if (one.number() == found.serving_revision()) serving = &one;
    }
  }
  *out += run.Show(found, [&](const v1::Deployment& deployment) {
    return DescribeDeploymentText(deployment, serving, run.screen.width);
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

absl::Status ModelBuffers(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const BufferSizes sizes, SizeBuffers(run.line.buffers));
  *out += run.json() ? Print(BuffersJson(sizes)) : BuffersText(sizes, run.screen.width);
  return CheckWindows(sizes);
}

absl::StatusOr<CertificatesReport> RunCerts(const CertsOptions& options, std::int64_t now_s) {
  switch (options.verb) {
    case CertsOptions::Verb::kIssue:
      return IssueOneCertificate(options);
    case CertsOptions::Verb::kShow:
      return ShowCertificates(options.dir, now_s);
    case CertsOptions::Verb::kEnsure:
      break;
  }
  return EnsureCertificates(options, now_s);
}

absl::Status Certs(const Run& run, std::string* out) {
  const std::int64_t now_s = std::time(nullptr);
  SY_ASSIGN_OR_RETURN(const CertificatesReport report, RunCerts(run.line.certs, now_s));
  *out += run.json() ? Print(CertificatesJson(report, now_s)) : CertificatesText(report, now_s);
  return absl::OkStatus();
}

std::vector<PortAnswer> AskPorts(const Run& run, const std::vector<v1::Worker>& workers,
                                 const v1::GetStatusRequest& request) {
  std::vector<PortAnswer> answers;
  for (WorkerSample& each : AskWorkers(run, workers, request)) {
    answers.push_back({std::move(each.status), std::move(each.answer)});
  }
  return answers;
}

// Anything wrong is a line of the checkup and no error of the command.
absl::Status Doctor(const Run& run, SyctlResult* result) {
  const ServiceCalls calls{
      .target = run.coordinator.target(),
      .security = run.coordinator.security(),
      .version = [&run] { return run.coordinator.Version(); },
      .workers = [&run] { return run.coordinator.Workers(); },
      .events = [&run] { return run.coordinator.Events(0); },
      .ask = [&run](
                 const std::vector<v1::Worker>& workers,
                 const v1::GetStatusRequest& request) { return AskPorts(run, workers, request); },
      .next_step = &NextStep};
  const std::vector<Check> checks =
      Examine(run.line.doctor, run.line.tls_dir, calls, run.line.wait_timeout);
  result->out += run.json() ? Print(ChecksJson(checks)) : ChecksText(checks, run.screen.width);
  if (CountOf(checks, Verdict::kFail) > 0) result->exit_code = kExitFailed;
  return absl::OkStatus();
}

absl::Status Traces(const Run& run, std::string* out) {
  const auto keep = [out](const std::string& text) {
    *out += text;
    return true;
  };
  const Viewer& viewer = run.screen.viewer;
  return TakeTraces({.listen = run.line.listen,
                     .count = run.line.count,
                     .within = run.line.wait_timeout,
                     .json = run.json(),
                     .tell = viewer.tell,
                     .show = viewer.live ? viewer.live : keep});
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
                        const Screen& screen, SyctlResult* result) {
  const Run run{line, coordinator, screen};
  std::string* out = &result->out;
  switch (line.verb) {
    case Verb::kApply:
      return Apply(run, out);
    case Verb::kDiff:
      return Diff(run, result);
    case Verb::kRollback:
      return Rollback(run, out);
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
    case Verb::kTop:
      return Top(run, out);
    case Verb::kTraces:
      return Traces(run, out);
    case Verb::kDescribe:
      return Describe(run, out);
    case Verb::kExplain:
      return OneLayer(run, out);
    case Verb::kModelInspect:
      return InspectModel(run, out);
    case Verb::kModelBuffers:
      return ModelBuffers(run, out);
    case Verb::kCerts:
      return Certs(run, out);
    case Verb::kDoctor:
      return Doctor(run, result);
    case Verb::kConfig:
      return Config(run, out);
    case Verb::kVersion:
      return Version(run, out);
  }
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
