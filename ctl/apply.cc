#include "ctl/apply.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/waiting.h"
#include "report/plan_summary.h"
#include "report/text_table.h"
#include "services/config/config_file.h"
#include "services/config/yaml_text.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"
#include "services/grpc/grpc_status.h"

namespace switchyard::ctl {
namespace {

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
  // Whether its weights are the same is not known then.
  if (same && !dry_run && after.has_reading()) return "reading";
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
  const v1::DeploymentSpec applied = deployment->spec();
  const absl::Status status =
      WaitForDeployment(waiting, applied.name(), Condition::kServing, deployment);
  if (!status.ok()) return status;
  // A revision from before may serve on: that is not what was applied.
  if (deployment->has_apply_failure()) return StatusFromProto(deployment->apply_failure());
  if (deployment->spec().SerializeAsString() == applied.SerializeAsString()) return status;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
      absl::StrCat("deployment ", applied.name(), " serves revision ", deployment->revision(),
                   ", which another apply made meanwhile; 'syctl get revisions ", applied.name(),
                   "' lists them"));
}

// `refused`, which stopped the apply at `at`, and what of the file it did not come to.
absl::Status WithRest(const absl::Status& refused, const std::vector<v1::DeploymentSpec>& specs,
                      const v1::DeploymentSpec& at) {
  std::vector<std::string> rest;
  for (std::size_t i = specs.size(); i-- > 0 && &specs[i] != &at;) {
    rest.insert(rest.begin(), specs[i].name());
  }
  if (rest.empty()) return refused;
  const std::map<std::string, std::string> metadata = MetadataOf(refused);
  return MakeError(refused.code(), ReasonOf(refused),
                   absl::StrCat(refused.message(), "; not tried: ", absl::StrJoin(rest, ", ")),
                   {metadata.begin(), metadata.end()});
}

}  // namespace

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
      const absl::Status refused = WithMetadata(applied.status(), "deployment", spec.name());
      status.Update(Annotate(WithRest(refused, specs, spec), file));
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

}  // namespace switchyard::ctl
