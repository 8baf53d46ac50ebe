#include "ctl/describe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/resolve/dtype_option.h"
#include "ctl/diff.h"
#include "ctl/json.h"
#include "ctl/output/progress.h"
#include "report/plan_summary.h"
#include "report/text_table.h"
#include "services/convert/enum_words.h"
#include "services/grpc/grpc_status.h"

namespace switchyard::ctl {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// Lines like "name:    value". The values start in one column, and long ones wrap within it.
std::string PrintFields(const Fields& fields, std::size_t width) {
  std::size_t column = 0;
  for (const auto& [name, value] : fields) column = std::max(column, name.size() + 3);
  std::string out;
  for (const auto& [name, value] : fields) {
    // At least 24 characters for the value, even in a narrow terminal.
    const std::size_t room = width == 0 ? 0 : std::max(width, column + 24) - column;
    std::string before = absl::StrCat(name, ":");
    for (const std::string& line : WrapWords(value.empty() ? "-" : value, room)) {
      absl::StrAppendFormat(&out, "%-*s%s\n", static_cast<int>(column), before, line);
      before.clear();
    }
  }
  return out;
}

double SecondsOf(const google::protobuf::Duration& time) {
  return static_cast<double>(time.seconds()) + static_cast<double>(time.nanos()) / 1e9;
}

// The words of a repeated enum field.
template <typename Proto, typename List>
std::string Words(const List& list) {
  return absl::StrJoin(list, ", ", [](std::string* out, int value) {
    absl::StrAppend(out, EnumWord(static_cast<Proto>(value)));
  });
}

std::string PhasesText(const v1::DeploymentSpec& spec) {
  return absl::StrJoin(spec.phases(), ", ", [](std::string* out, const v1::PhaseSpec& phase) {
    const std::string mode = EnumWord(phase.mode());
    absl::StrAppend(out, EnumWord(phase.phase()), mode.empty() ? "" : " in ", mode);
  });
}

std::string ShapeText(const v1::MoeShape& shape) {
  return absl::StrFormat("%d experts, top-k %d, hidden %d, intermediate %d", shape.experts(),
                         shape.top_k(), shape.hidden(), shape.intermediate());
}

// Facts for engines. Workers themselves run no attention.
std::string GdnText(const v1::GdnFacts& gdn) {
  return absl::StrCat(
      "verify drafts with ", EnumWord(gdn.verify_kernel()),
      gdn.grid_2d() ? "; two-dimensional grids work" : "; no kernels with two-dimensional grids");
}

// Sources need the same series of the library.
std::string TransportsText(const v1::CapabilitySet& can) {
  const std::string names = absl::StrJoin(can.transports(), ", ");
  const std::string& library = can.transport_library();
  return library.empty() ? names : absl::StrCat(names, ", by ", library);
}

template <typename Layers>
std::string LayersText(const Layers& layers) {
  return absl::StrFormat("%d (%s)", layers.size(), Ranges({layers.begin(), layers.end()}));
}

// The dtype for the whole deployment with the place where it is set. An auto by the coordinator is
// not listed as a default, because it has no effect.
std::string WireDtypeText(const v1::DeploymentSpec& spec, const v1::DispatchDefaults& defaults) {
  std::string text;
  if (spec.dispatcher_output_dtype() != v1::DTYPE_CHOICE_UNSPECIFIED) {
    text = absl::StrCat(EnumWord(spec.dispatcher_output_dtype()), ", set by the deployment");
  } else if (defaults.dispatcher_output_dtype() > v1::DTYPE_CHOICE_AUTO) {
    text =
        absl::StrCat(EnumWord(defaults.dispatcher_output_dtype()), ", the coordinator's default");
  } else {
    text = "auto";
  }
  // Deprecated flags are listed even without effect, because they should be removed.
  const auto add = [&text](absl::string_view variable, const std::string& source) {
    if (source.empty()) return;
    absl::StrAppend(&text, "\n", variable, " (deprecated) is set by ", source);
  };
  add(kBf16Variable, defaults.bf16_dispatch_flag());
  add(kNpuInt8Variable, defaults.npu_normal_int8_flag());
  return text;
}

// The model that serves; before the first epoch, the one that will.
v1::Model ModelOf(const v1::Deployment& deployment) {
  if (deployment.has_serving_model()) return deployment.serving_model();
  v1::Model model;
  model.set_name(deployment.spec().model());
  model.set_checkpoint(deployment.spec().checkpoint());
  if (deployment.has_shape()) *model.mutable_shape() = deployment.shape();
  *model.mutable_layers() = deployment.layers();
  model.set_manifest_hash(deployment.manifest_hash());
  return model;
}

// "model b, from /models/b, epoch 6"; empty while the model that serves is the one applied.
std::string ComingText(const v1::Deployment& deployment, const v1::Model& serving) {
  const v1::DeploymentSpec& spec = deployment.spec();
  if (serving.name() == spec.model() && serving.manifest_hash() == deployment.manifest_hash()) {
    return "";
  }
  const std::string epoch =
      deployment.pending_epoch() == 0 ? "" : absl::StrCat(", epoch ", deployment.pending_epoch());
  return absl::StrCat("model ", spec.model(), ", from ", spec.checkpoint(), epoch);
}

// Both epochs, because during a change the old one still serves.
std::string EpochsText(const v1::Deployment& deployment) {
  if (deployment.pending_epoch() == 0) return absl::StrCat(deployment.committed_epoch());
  return absl::StrCat(deployment.committed_epoch(), ", then ", deployment.pending_epoch());
}

}  // namespace

std::string BytesText(std::uint64_t bytes) {
  if (bytes == 0) return "no limit";
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // The unit is chosen so that at most four digits are before it.
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.4g %s", value, kUnits[unit]);
}

namespace {

// "message (CODE, REASON)"
std::string ProblemText(const v1::Status& proto) {
  const absl::Status problem = StatusFromProto(proto);
  return absl::StrCat(problem.message(), " (", absl::StatusCodeToString(problem.code()), ", ",
                      ReasonName(ReasonOf(problem)), ")");
}

DiffSide SideOf(const v1::DeploymentSpec& spec, const v1::DispatchDefaults& defaults) {
  DiffSide side;
  side.spec = ToJson(spec);
  side.spec["coordinator_defaults"] = ToJson(defaults);
  return side;
}

// How the revision that was applied last differs from the one that serves; empty: none does.
std::string AppliedLastText(const v1::Deployment& deployment, const v1::Revision* serving) {
  if (serving == nullptr) return "";
  const std::string text =
      DifferencesText(Compare(SideOf(serving->spec(), serving->coordinator_defaults()),
                              SideOf(deployment.spec(), deployment.coordinator_defaults())));
  return absl::StrFormat("\nrevision %d against revision %d, which serves:\n%s",
                         deployment.revision(), serving->number(),
                         text.empty() ? "  other weights\n" : text);
}

}  // namespace

std::string DescribeDeploymentText(const v1::Deployment& deployment, const v1::Revision* serving,
                                   std::size_t width) {
  // Settings are those that serve; what else was applied is listed apart.
  const v1::DeploymentSpec& spec = serving == nullptr ? deployment.spec() : serving->spec();
  const v1::DispatchDefaults& defaults =
      serving == nullptr ? deployment.coordinator_defaults() : serving->coordinator_defaults();
  const v1::Model model = ModelOf(deployment);
  Fields fields{{"name", spec.name()}, {"model", model.name()}, {"checkpoint", model.checkpoint()}};
  if (const std::string coming = ComingText(deployment, model); !coming.empty()) {
    fields.emplace_back("coming", coming);
  }
  if (deployment.has_reading()) {
    fields.emplace_back("reading", ReadingText(deployment.reading()));
  }
  if (serving != nullptr) {
    fields.emplace_back("revision", absl::StrFormat("%d serves, %d was applied last",
                                                    serving->number(), deployment.revision()));
  }
  fields.emplace_back("state", EnumWord(deployment.state()));
  fields.emplace_back("activity", deployment.activity());
  if (deployment.has_problem()) {
    fields.emplace_back("problem", ProblemText(deployment.problem()));
  }
  if (deployment.has_apply_failure()) {
    fields.emplace_back("last apply", ProblemText(deployment.apply_failure()));
  }
  const Fields more{
      {"epoch", EpochsText(deployment)},
      {"plan", absl::BytesToHexString(deployment.plan_hash())},
      {"sessions", absl::StrCat(deployment.sessions())},
      {"phases", PhasesText(spec)},
      {"pools", spec.pools().empty() ? "all" : absl::StrJoin(spec.pools(), ", ")},
      {"min workers", absl::StrCat(spec.min_workers())},
      {"join timeout", absl::StrFormat("%g s", SecondsOf(spec.join_timeout()))},
      {"former model",
       spec.former_model_kept().seconds() > 0 || spec.former_model_kept().nanos() > 0
           ? absl::StrFormat("kept for %g s", SecondsOf(spec.former_model_kept()))
           : "ends at once"},
      {"max tokens", absl::StrCat(spec.max_tokens_per_step(), " in a step of low_latency")},
      {"wire dtype", WireDtypeText(spec, defaults)},
      {"shape", model.has_shape() ? ShapeText(model.shape()) : ""},
      {"MoE layers", model.has_shape() ? LayersText(model.layers()) : ""},
      {"manifest", absl::BytesToHexString(model.manifest_hash())},
      {"left out", absl::StrJoin(deployment.left_out(), "\n")}};
  fields.insert(fields.end(), more.begin(), more.end());
  const std::string staging = StagingByWorker(deployment.staging());
  return absl::StrCat(PrintFields(fields, width), AppliedLastText(deployment, serving),
                      staging.empty() ? "" : "\n", staging);
}

std::string DescribeModelText(const v1::Model& model,
                              const std::vector<v1::Deployment>& deployments, std::size_t width) {
  std::vector<std::string> serving;
  for (const v1::Deployment& deployment : deployments) {
    serving.push_back(absl::StrCat(deployment.spec().name(), ": ", EnumWord(deployment.state()),
                                   ", ", deployment.activity()));
  }
  return PrintFields({{"name", model.name()},
                      {"checkpoint", model.checkpoint()},
                      {"shape", ShapeText(model.shape())},
                      {"MoE layers", LayersText(model.layers())},
                      {"manifest", absl::BytesToHexString(model.manifest_hash())},
                      {"deployments", absl::StrJoin(serving, "\n")}},
                     width);
}

std::string DescribeWorkerText(const v1::Worker& worker, const std::vector<Plan>& plans) {
  const v1::CapabilitySet& can = worker.capabilities();
  std::string out = PrintFields(
      {{"id", worker.id()},
       {"incarnation", worker.incarnation()},
       {"endpoint", worker.endpoint()},
       {"pool", worker.pool()},
       {"state", EnumWord(worker.state())},
       {"problem", worker.problem()},
       {"lease left", absl::StrFormat("%.1f s", SecondsOf(worker.lease_left()))},
       {"progress", absl::StrCat(worker.progress(), " turns of its data thread")},
       {"device",
        absl::StrCat(EnumWord(can.device()), ", limits of profile ", can.device_profile())},
       {"kernel family", can.kernel_family()},
       {"wire dtypes", Words<v1::DispatchDtype>(can.wire_dtypes())},
       {"schemes", Words<v1::QuantScheme>(can.schemes())},
       {"transports", TransportsText(can)},
       {"release", worker.release()},
       {"protocol", absl::StrCat("version ", worker.protocol_version())},
       {"max top-k", absl::StrCat(can.max_top_k())},
       {"weight memory", BytesText(can.weight_bytes_max())},
       {"GDN", can.has_gdn() ? GdnText(can.gdn()) : ""},
       {"experts", absl::StrCat(worker.experts())}},
      0);
  TextTable held({"DEPLOYMENT", "EPOCH", "STATE", "PLAN"});
  for (const v1::ResidentEpoch& epoch : worker.resident()) {
    held.Add({epoch.deployment(), absl::StrCat(epoch.epoch()),
              epoch.committed() ? "committed" : "prepared",
              // The start of the hash is enough to compare plans by eye.
              absl::BytesToHexString(epoch.plan_hash()).substr(0, 12)});
  }
  if (held.rows() > 0) absl::StrAppend(&out, "\n", held.Print());
  const std::string staging = StagingByEpoch(worker.staging());
  if (!staging.empty()) absl::StrAppend(&out, "\n", staging);
  TextTable hosts({"DEPLOYMENT", "LAYERS", "EXPERTS"});
  for (const Plan& plan : plans) {
    const std::optional<WorkerOrdinal> ordinal = plan.FindWorker(worker.id());
    for (const PlacementRow& row : SummarizePlacement(plan)) {
      if (row.worker == ordinal) hosts.Add({plan.deployment, row.layers, row.experts});
    }
  }
  if (hosts.rows() > 0) absl::StrAppend(&out, "\n", hosts.Print());
  return out;
}

}  // namespace switchyard::ctl
