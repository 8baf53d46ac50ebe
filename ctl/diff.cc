#include "ctl/diff.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/output/tables.h"
#include "ctl/waiting.h"
#include "report/plan_summary.h"
#include "services/config/config_file.h"
#include "services/config/yaml_text.h"
#include "services/convert/plan.h"

namespace switchyard::ctl {
namespace {

constexpr int kExitDifferences = 1;

// Names an entry of a list by what distinguishes it: "decode", "3" or "3 decode".
std::string LabelOf(const Json& entry, std::size_t index) {
  std::string label;
  for (const char* key : {"layer", "phase"}) {
    if (!entry.is_object() || !entry.contains(key)) continue;
    const Json& value = entry[key];
    absl::StrAppend(&label, label.empty() ? "" : " ",
                    value.is_string() ? value.get<std::string>() : value.dump());
  }
  return label.empty() ? absl::StrCat(index) : label;
}

// One entry for each value, in the order of the message.
using Values = std::vector<std::pair<std::string, std::string>>;
void Flatten(const std::string& key, const Json& json, Values* out) {
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      Flatten(key.empty() ? name : absl::StrCat(key, ".", name), value, out);
    }
  } else if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) {
      Flatten(absl::StrCat(key, "[", LabelOf(json[i], i), "]"), json[i], out);
    }
  } else {
    out->emplace_back(key, json.is_string() ? json.get<std::string>() : json.dump());
  }
}

std::vector<Difference> CompareSpecs(const Json& from, const Json& to) {
  Values before;
  Values after;
  Flatten("", from, &before);
  Flatten("", to, &after);
  std::map<std::string, std::string> left(before.begin(), before.end());
  std::vector<Difference> differences;
  for (const auto& [key, value] : after) {
    const auto node = left.extract(key);
    const std::string old = node.empty() ? "" : node.mapped();
    if (old != value) differences.push_back({key, old, value});
  }
  for (const auto& [key, value] : before) {
    if (left.contains(key) && !value.empty()) differences.push_back({key, value, ""});
  }
  return differences;
}

// The configs of `of` that `other` has not, or has otherwise.
std::vector<DispatchConfig> OnlyIn(const std::vector<DispatchConfig>& of,
                                   const std::vector<DispatchConfig>& other) {
  std::vector<DispatchConfig> only;
  for (const DispatchConfig& config : of) {
    const bool same = std::any_of(other.begin(), other.end(), [&](const DispatchConfig& one) {
      return one.layer == config.layer && one.phase == config.phase && one.edge == config.edge &&
             HowText(one) == HowText(config) &&
             one.max_tokens_per_step == config.max_tokens_per_step;
    });
    if (!same) only.push_back(config);
  }
  return only;
}

std::string KeyOf(const ConfigRow& row) {
  return absl::StrCat("layers ", row.layers, ", ", PhaseName(row.config.phase), ", ",
                      EdgeText(row.config.edge));
}

std::string HowOf(const ConfigRow& row) {
  const std::int32_t most = row.config.max_tokens_per_step;
  return absl::StrCat(HowText(row.config), most == 0 ? "" : absl::StrCat(", ", most, " tokens"));
}

// The coordinator's side: the revision that serves; the one applied last where none does.
absl::StatusOr<DiffSide> ServedSide(const Run& run, const std::string& name, std::string* against) {
  DiffSide side;
  const auto revisions = run.coordinator.Revisions(name);
  if (absl::IsNotFound(revisions.status())) {
    *against = "does not exist";
    return side;
  }
  SY_RETURN_IF_ERROR(revisions.status());
  const v1::Revision* found = nullptr;
  for (const v1::Revision& one : revisions->revisions()) {
    if (one.state() == v1::REVISION_STATE_SERVING) found = &one;
  }
  const bool serves = found != nullptr;
  if (!serves && revisions->revisions_size() > 0) found = &*revisions->revisions().rbegin();
  if (found == nullptr) {
    *against = "is being applied for the first time";
    return side;
  }
  *against = absl::StrCat("revision ", found->number(),
                          serves ? " serves" : " was applied last, and none serves");
  side.spec = ToJson(found->spec());
  side.spec["coordinator_defaults"] = ToJson(found->coordinator_defaults());
  side.spec["weights"] = absl::BytesToHexString(found->manifest_hash());
  if (!serves) return side;
  // Its plan may go meanwhile; then there is none to compare with.
  const auto plan = run.coordinator.Plan(name);
  if (!plan.ok()) return side;
  SY_ASSIGN_OR_RETURN(HashedPlan hashed, FromProto(*plan));
  side.configs = std::move(hashed.plan.configs);
  return side;
}

absl::StatusOr<DiffSide> WantedSide(const v1::ApplyDeploymentResponse& response) {
  DiffSide side;
  side.spec = ToJson(response.deployment().spec());
  side.spec["coordinator_defaults"] = ToJson(response.deployment().coordinator_defaults());
  side.spec["weights"] = absl::BytesToHexString(response.deployment().manifest_hash());
  Decoder at("ApplyDeploymentResponse");
  at.Each("configs", response.configs(), &side.configs,
          [&at](const v1::DispatchConfig& in, DispatchConfig* out) { Decode(at, in, out); });
  return at.Finish(std::move(side));
}

Json ToJson(const std::vector<Difference>& differences) {
  Json list = Json::array();
  for (const Difference& one : differences) {
    list.push_back({{"key", one.key}, {"from", one.from}, {"to", one.to}});
  }
  return list;
}

}  // namespace

std::vector<Difference> Compare(const DiffSide& from, const DiffSide& to) {
  std::vector<Difference> differences = CompareSpecs(from.spec, to.spec);
  if (from.configs.empty() || to.configs.empty()) return differences;
  for (const ConfigRow& row : SummarizeConfigs(OnlyIn(from.configs, to.configs))) {
    differences.push_back({KeyOf(row), HowOf(row), ""});
  }
  for (const ConfigRow& row : SummarizeConfigs(OnlyIn(to.configs, from.configs))) {
    differences.push_back({KeyOf(row), "", HowOf(row)});
  }
  return differences;
}

std::string DifferencesText(const std::vector<Difference>& differences) {
  std::string out;
  for (const Difference& one : differences) {
    if (!one.from.empty()) absl::StrAppend(&out, "- ", one.key, ": ", one.from, "\n");
    if (!one.to.empty()) absl::StrAppend(&out, "+ ", one.key, ": ", one.to, "\n");
  }
  return out;
}

absl::Status Diff(const Run& run, SyctlResult* result) {
  SY_ASSIGN_OR_RETURN(const std::vector<v1::DeploymentSpec> specs, ReadDeployments(run.line.file));
  const std::string file = NameOfFile(run.line.file);
  Json list = Json::array();
  absl::Status refusal;
  for (const v1::DeploymentSpec& spec : specs) {
    std::string against;
    SY_ASSIGN_OR_RETURN(const DiffSide served, ServedSide(run, spec.name(), &against));
    const auto wanted = run.coordinator.Apply(spec, /*dry_run=*/true, /*hash_weights=*/true);
    if (!wanted.ok()) return Annotate(wanted.status(), file);
    refusal.Update(Annotate(RefusalOf(wanted->deployment()), file));
    SY_ASSIGN_OR_RETURN(const DiffSide side, WantedSide(*wanted));
    const std::vector<Difference> differences = Compare(served, side);
    list.push_back({{"deployment", spec.name()},
                    {"against", against},
                    {"differences", ToJson(differences)},
                    {"activity", wanted->deployment().activity()}});
    if (differences.empty()) continue;
    result->exit_code = kExitDifferences;
    if (run.json()) continue;
    absl::StrAppend(&result->out, "deployment ", spec.name(), ": ", against, "; ", file,
                    " differs\n", DifferencesText(differences), "  ",
                    wanted->deployment().activity(), "\n");
  }
  if (run.json()) result->out += Print({{"diff", list}});
  return refusal;
}

}  // namespace switchyard::ctl
