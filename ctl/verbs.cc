#include "ctl/verbs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/suggest.h"
#include "core/base/units.h"
#include "core/resolve/what_if.h"
#include "ctl/output/json_path.h"

namespace switchyard::ctl {
namespace {

constexpr char kGlobalOptions[] =
    "Options of every command:\n"
    "  --target HOST:PORT   the coordinator (default: SYCTL_TARGET, the context's, "
    "127.0.0.1:7700)\n"
    "  --tls-dir FOLDER     mutual TLS (default: SYCTL_TLS_DIR, the context's, none)\n"
    "  --context NAME       the context to use instead of the current one ('syctl config')\n"
    "  -o FORMAT            table, wide, json, yaml, jsonl, name or jsonpath=TEMPLATE (default:\n"
    "                       table on a terminal, else json)\n"
    "  --color WHEN         auto (on a terminal, unless NO_COLOR is set), always or never\n"
    "  --timeout TIME       timeout of each call (default 10s; apply: 30m), and of the whole wait\n"
    "                       with --wait and in wait (default 5m; apply: 30m); 90s, 5m, or "
    "seconds\n";

// Accepts both forms of each of `kinds`; errors list the form that the verb's help uses.
CLI::Validator KindOf(std::vector<Kind> kinds, bool many, Kind* out) {
  const auto check = [kinds = std::move(kinds), many, out](const std::string& word) -> std::string {
    std::vector<std::string> known;
    for (const KindWord& row : kKinds) {
      if (std::find(kinds.begin(), kinds.end(), row.kind) == kinds.end()) continue;
      known.emplace_back(many ? row.many : row.one);
      if (word == row.one || word == row.many) {
        *out = row.kind;
        return "";
      }
    }
    return absl::StrCat("unknown kind \"", word, "\"", DidYouMean(word, known));
  };
  return CLI::Validator(check, "");
}

void AddDeployment(CLI::App* verb, RawCommandLine& raw) {
  verb->add_option("--deployment", raw.line.deployment,
                   "The deployment; optional if there is only one");
}

void AddWait(CLI::App* verb, RawCommandLine& raw, const std::string& help) {
  verb->add_flag("--wait", raw.line.wait, help);
}

void AddApply(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("apply", "Create or change deployments from a file");
  verb->add_option("-f,--file", raw.line.file,
                   "YAML or JSON, several documents separated by ---; -: standard input")
      ->required();
  verb->add_flag("--dry-run", raw.line.dry_run, "Check the file without changing anything");
  AddWait(verb, raw, "Wait until what was applied serves");
  verb->get_option("--wait")->excludes("--dry-run");
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl apply -f deployment.yaml\n"
                            "  syctl apply -f deployment.yaml --wait --timeout 600\n"
                            "  syctl apply -f deployment.yaml --dry-run\n"
                            "  generate-deployments | syctl apply -f -\n"
                            "A minimal file:\n"
                            "  name: local\n"
                            "  checkpoint: /models/qwen3-moe\n"));
}

void AddDiff(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("diff", "Show what applying a file would change");
  verb->add_option("-f,--file", raw.line.file, "As of apply")->required();
  verb->footer(
      absl::StrCat(kGlobalOptions,
                   "Compares with the revision that serves, or with the one applied last\n"
                   "where none serves. Exit codes: 0 no difference, 1 differences, 2 error.\n"
                   "Example:\n"
                   "  syctl diff -f deployment.yaml\n"));
}

// `name` is in the usage and in the error that it is missing.
void AddObject(CLI::App* verb, RawCommandLine& raw, const std::string& name,
               const std::string& help) {
  verb->add_option(name, raw.object, help)->required()->expected(1, 2);
}

void AddRollback(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("rollback", "Apply a former revision of a deployment again");
  AddObject(verb, raw, "DEPLOYMENT", "deployment NAME");
  verb->add_option("--to-revision", raw.line.to_revision,
                   "Its number; default: the newest one before that has served")
      ->check(CLI::Range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()))
      ->check([](const std::string& text) -> std::string {
        // Which the conversion to an unsigned number takes as a large one.
        return text.starts_with('-') ? "a revision is 1 or more" : "";
      });
  AddWait(verb, raw, "Wait until it serves");
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl get revisions local\n"
                            "  syctl get events -w\n"
                            "  syctl rollback deployment local --wait\n"
                            "  syctl rollback deployment local --to-revision 3\n"));
}

void AddDelete(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("delete", "Delete a deployment once its sessions are closed");
  AddObject(verb, raw, "DEPLOYMENT", "deployment NAME");
  verb->add_flag("--now", raw.line.now, "End its sessions; steps that run have 5 s");
  AddWait(verb, raw, "Wait until it is gone");
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl delete deployment local --wait\n"
                            "  syctl delete deployment local --now\n"));
}

void AddWorkerVerbs(CLI::App& app, RawCommandLine& raw) {
  CLI::App* cordon =
      app.add_subcommand("cordon", "Keep a worker out of plans that it does not serve in");
  AddObject(cordon, raw, "WORKER", "worker ID");
  AddWait(cordon, raw, "Wait until it loads nothing that was planned before");
  cordon->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl cordon worker w0\n"));
  CLI::App* uncordon = app.add_subcommand("uncordon", "Let plans use a worker again");
  AddObject(uncordon, raw, "WORKER", "worker ID");
  AddWait(uncordon, raw, "Wait until it is live: plans may use it");
  uncordon->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl uncordon worker w0\n"));
  CLI::App* drain = app.add_subcommand(
      "drain", "Move a worker's experts to the others; its process goes on, and may end then");
  AddObject(drain, raw, "WORKER", "worker ID");
  drain->add_flag("--force", raw.line.force,
                  "Also where the others cannot serve its deployments: it serves until they can");
  AddWait(drain, raw, "Wait until it holds nothing any more");
  drain->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl drain worker w0 --wait\n"));
}

void AddWaitVerb(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("wait", "Wait until an object is in a state");
  AddObject(verb, raw, "OBJECT", "deployment NAME or worker ID");
  verb->add_option("--for", raw.condition,
                   "serving or deleted for a deployment, live or drained for a worker")
      ->required()
      ->check(CLI::IsMember({"serving", "deleted", "live", "drained"}));
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl wait deployment local --for serving --timeout 60\n"
                            "  syctl wait worker/w0 --for drained\n"));
}

std::string CheckJsonPath(const std::string& text) {
  return std::string(JsonPath::Parse(text).status().message());
}

void AddNoHeaders(CLI::App* verb, RawCommandLine& raw) {
  verb->add_flag("--no-headers", raw.line.no_headers, "Print tables without their first line");
}

void AddGet(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("get", "List objects, one per line");
  verb->add_option("KIND", raw.kind,
                   "deployments, models, workers, layers, plan, revisions, sessions, events or "
                   "metrics")
      ->required()
      ->check(KindOf({Kind::kDeployments, Kind::kModels, Kind::kWorkers, Kind::kLayers, Kind::kPlan,
                      Kind::kRevisions, Kind::kSessions, Kind::kEvents, Kind::kMetrics},
                     /*many=*/true, &raw.line.kind));
  verb->add_option(
      "NAME", raw.name,
      "Only that one; for layers, plan, revisions and sessions: of that deployment; for "
      "events: about that deployment or worker; for metrics: all of that worker, or of the "
      "coordinator");
  AddDeployment(verb, raw);
  verb->add_flag("-w,--watch", raw.line.watch,
                 "Print the list again whenever it changes; of events, the new ones");
  verb->add_option("--sort-by", raw.line.sort_by,
                   "Order of the list: a path in each element's JSON, as .experts or {.spec.name}")
      ->check(CLI::Validator(CheckJsonPath, ""));
  AddNoHeaders(verb, raw);
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl get workers\n"
                            "  syctl get worker w0\n"
                            "  syctl get deployments -w\n"
                            "  syctl get revisions local\n"
                            "  syctl get layers --deployment local\n"
                            "  syctl get workers -o wide --sort-by .experts\n"
                            "  syctl get workers -o jsonpath='{.workers[*].id}'\n"
                            "  syctl get metrics\n"
                            "  syctl get plan -o json | jq .plan.epoch\n"));
}

void AddTop(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb =
      app.add_subcommand("top", "Show how busy the workers are, and how long their steps take");
  verb->add_option("WORKER", raw.name, "Only that one");
  verb->add_flag("-w,--watch", raw.line.watch, "Measure again and again");
  AddNoHeaders(verb, raw);
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Measures for a second, and asks each worker at its own address.\n"
                            "Examples:\n"
                            "  syctl top\n"
                            "  syctl top w0 -w\n"));
}

// As CheckTarget, and port 0 is any free one.
std::string CheckListen(const std::string& text) {
  return absl::EndsWith(text, ":0") ? "" : CheckTarget(text);
}

// A collector, and so has no coordinator.
void AddTraces(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb =
      app.add_subcommand("traces", "Take traces of steps, and print each; needs no coordinator");
  verb->add_option("--listen", raw.line.listen,
                   "Where sources and workers send them: the coordinator's --trace-endpoint")
      ->check(CLI::Validator(CheckListen, ""))
      ->capture_default_str();
  verb->add_option("--count", raw.line.count, "End after so many; 0: when nobody reads any more")
      ->capture_default_str();
  verb->footer(
      "-o table|json: output format (default: table on a terminal, else json). --timeout: end\n"
      "after that time. A trace is printed when nothing of it has come for a second.\n"
      "Examples:\n"
      "  switchyard-coordinator --trace-ratio 0.01\n"
      "  syctl traces\n"
      "  syctl traces --listen 0.0.0.0:4317 --count 10 -o json\n");
}

void AddDescribe(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("describe", "Show all details of one object");
  verb->add_option("KIND", raw.kind, "deployment, model, worker or layer")
      ->required()
      ->check(KindOf({Kind::kDeployments, Kind::kModels, Kind::kWorkers, Kind::kLayers},
                     /*many=*/false, &raw.line.kind));
  verb->add_option("NAME", raw.name, "Its name, or the number of a layer")->required();
  AddDeployment(verb, raw);
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl describe worker w0\n"
                            "  syctl describe layer 3\n"));
}

// The resolver's own list of kinds is used, so that new profiles need no change here.
std::string CheckWorkerKind(const std::string& word) {
  return std::string(ProfilesNamed(word).status().message());
}

std::string CheckEdge(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
    return absl::StrCat("\"", text, "\" is not \"source:worker\", as in gpu:npu");
  }
  const std::string source = CheckWorkerKind(text.substr(0, colon));
  return source.empty() ? CheckWorkerKind(text.substr(colon + 1)) : source;
}

void AddExplain(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("explain", "Explain how a layer's rows travel, and why");
  verb->add_option("KIND", raw.kind, "layer")
      ->required()
      ->check(KindOf({Kind::kLayers}, /*many=*/false, &raw.line.kind));
  verb->add_option("LAYER", raw.name, "The layer's number in the model")->required();
  verb->add_option("--phase", raw.phase, "prefill, decode or mixed; default: all phases")
      ->check(CLI::IsMember({"prefill", "decode", "mixed"}));
  verb->add_option("--edge", raw.edge,
                   "Only rows from SOURCE to WORKER, each cpu, gpu, npu or a profile; works for "
                   "edges that the plan does not have")
      ->check(CLI::Validator(CheckEdge, ""));
  AddDeployment(verb, raw);
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl explain layer 3\n"
                            "  syctl explain layer 3 --phase decode\n"
                            "  syctl explain layer 3 --edge gpu:npu\n"));
}

// Reads a checkpoint only, so it has no global options except the output format.
void AddModel(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand("model", "Inspect a checkpoint; needs no coordinator");
  verb->require_subcommand(1);
  verb->footer("Example:\n  syctl model inspect models/sqlite-moe-7m\n");
  CLI::App* buffers = AddBuffersVerb(*verb, &raw.line.buffers);
  buffers->callback([&raw] { raw.model_verb = Verb::kModelBuffers; });
  CLI::App* inspect = verb->add_subcommand(
      "inspect", "Show layers, schemes, tensors, and how rows would travel to each kind of worker");
  inspect->add_option("PATH", raw.line.path, "The checkpoint's folder")->required();
  inspect->add_option("--layer", raw.line.only_layer, "Only this layer")
      ->check(CLI::NonNegativeNumber);
  inspect
      ->add_option("--worker-kind", raw.line.worker_kind,
                   "Only this kind: cpu, gpu, npu, or a profile such as cuda_sm90")
      ->check(CLI::Validator(CheckWorkerKind, ""));
  inspect->footer(
      "-o table|json: output format (default: table on a terminal, else json). Exit code 1 if\n"
      "the experts of a layer cannot be served.\n"
      "Examples:\n"
      "  syctl model inspect models/sqlite-moe-7m\n"
      "  syctl model inspect /models/deepseek-v3 --layer 61 --worker-kind npu\n");
}

void AddContextVerb(CLI::App* config, RawCommandLine& raw, ConfigVerb verb, const char* word,
                    const char* help) {
  CLI::App* each = config->add_subcommand(word, help);
  each->callback([&raw, verb] { raw.line.config_verb = verb; });
  if (verb == ConfigVerb::kGetContexts || verb == ConfigVerb::kCurrentContext) return;
  each->add_option("NAME", raw.name, "The context")->required();
  if (verb == ConfigVerb::kSetContext) AddDeployment(each, raw);
}

void AddConfig(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb = app.add_subcommand(
      "config", "Name coordinators, so that commands need no --target; needs no coordinator");
  verb->require_subcommand(1);
  AddContextVerb(verb, raw, ConfigVerb::kGetContexts, "get-contexts", "List the contexts");
  AddContextVerb(verb, raw, ConfigVerb::kCurrentContext, "current-context",
                 "Print the name of the current one");
  AddContextVerb(verb, raw, ConfigVerb::kUseContext, "use-context", "Make one the current one");
  AddContextVerb(
      verb, raw, ConfigVerb::kSetContext, "set-context",
      "Create or change one: --target, --tls-dir, and the --deployment that commands mean");
  AddContextVerb(verb, raw, ConfigVerb::kDeleteContext, "delete-context", "Forget one");
  verb->footer(
      "The file is syctl.yaml in XDG_CONFIG_HOME or ~/.config. --target and SYCTL_TARGET come\n"
      "before a context.\n"
      "Examples:\n"
      "  syctl config set-context prod --target 10.0.0.7:7700 --deployment chat\n"
      "  syctl config use-context prod\n"
      "  syctl --context staging get workers\n");
}

void AddCompletion(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb =
      app.add_subcommand("completion", "Print the script that completes syctl's words");
  verb->add_option("SHELL", raw.kind, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "Names of workers, deployments and models come from the coordinator. Examples:\n"
      "  source <(syctl completion bash)\n"
      "  syctl completion fish >~/.config/fish/completions/syctl.fish\n");
}

void AddVersion(CLI::App& app, RawCommandLine& raw) {
  CLI::App* verb =
      app.add_subcommand("version", "Show the versions of this program and the coordinator");
  verb->add_flag("--client", raw.line.client_only, "Only this program; needs no coordinator");
  verb->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl version --client\n"));
}

// Replaces a duration with a unit by its seconds, and leaves anything else to the check of the
// number.
std::string ToSeconds(std::string& text) {
  double seconds = 0;
  if (const auto time = ParseDuration(text)) {
    text = absl::StrCat(std::chrono::duration<double>(*time).count());
  } else if (!absl::SimpleAtod(text, &seconds)) {
    return absl::StrCat("\"", text, "\" is not a time; write 90s, 5m or a number of seconds");
  }
  return "";
}

void AddGlobalOptions(CLI::App& app, RawCommandLine& raw) {
  app.add_option("--tls-dir", raw.line.tls_dir,
                 "Folder with ca.crt, tls.crt, tls.key and identities.yaml, for mutual TLS");
  app.add_option("--target", raw.line.target, "The coordinator, as host:port")
      ->check(CLI::Validator(CheckTarget, ""))
      ->capture_default_str();
  app.add_option("--context", raw.line.context, "The context to use instead of the current one");
  app.add_option("-o,--output", raw.output,
                 "table, wide, json, yaml, jsonl, name or jsonpath=TEMPLATE; default: table on a "
                 "terminal, else json");
  app.add_option("--color", raw.color, "auto: on a terminal, unless NO_COLOR is set")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app.add_option("--timeout", raw.timeout_s,
                 "Timeout, as 90s, 5m or a number of seconds: of each call (default 10s; apply: "
                 "30m), and of a wait as a whole (default 5m; apply: 30m; doctor: 30s)")
      ->transform(CLI::Validator(ToSeconds, ""))
      ->check(CLI::Range(0.001, 86400.0));
}

}  // namespace

// Checked here and not at the first call, so that a typo gives a usage error and not a timeout.
std::string CheckTarget(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  const bool good = colon != std::string::npos && colon > 0 &&
                    absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port < 65536;
  return good ? "" : absl::StrCat("\"", text, "\" is not \"host:port\"");
}

namespace {

// Words of kubectl that have another name here, or none.
struct ForeignWord {
  const char* word;
  const char* here;
};
constexpr ForeignWord kForeignWords[] = {
    {"all", "name one kind"},
    {"create", "'syctl apply -f FILE' creates and changes"},
    {"deploy", "the kind is \"deployment\""},
    {"edit", "change the file and run 'syctl apply -f FILE'"},
    {"exec", "workers run no commands; 'syctl describe worker NAME' shows one"},
    {"logs", "each program writes its own log; 'syctl get events' says what happened"},
    {"node", "the kind is \"worker\""},
    {"nodes", "the kind is \"worker\""},
    {"patch", "change the file and run 'syctl apply -f FILE'"},
    {"pod", "the kind is \"worker\""},
    {"pods", "the kind is \"worker\""},
    {"replace", "change the file and run 'syctl apply -f FILE'"},
    {"rollout",
     "'syctl rollback deployment NAME' goes back, 'syctl wait deployment NAME --for serving' "
     "waits"},
    {"scale", "start or drain workers; min_workers is a key of the deployment's file"},
    {"set", "change the file and run 'syctl apply -f FILE'"},
    {"taint", "'syctl cordon worker NAME' keeps plans away from a worker"},
};

}  // namespace

// With a near match the list of all words would only distract.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  for (const ForeignWord& foreign : kForeignWords) {
    if (word == foreign.word) return absl::StrCat("; ", foreign.here);
  }
  const std::string near = NearestWord(word, known);
  return near.empty() ? absl::StrCat("; one of ", absl::StrJoin(known, ", "))
                      : absl::StrCat("; did you mean \"", near, "\"?");
}

const std::vector<std::string>& Verbs() {
  static const std::vector<std::string> kVerbs{
      "apply", "diff",   "rollback", "delete",     "cordon",   "uncordon", "drain",
      "wait",  "get",    "top",      "traces",     "describe", "explain",  "model",
      "certs", "doctor", "config",   "completion", "version"};
  return kVerbs;
}

void AddVerbs(CLI::App& app, RawCommandLine& raw) {
  AddGlobalOptions(app, raw);
  AddApply(app, raw);
  AddDiff(app, raw);
  AddRollback(app, raw);
  AddDelete(app, raw);
  AddWorkerVerbs(app, raw);
  AddWaitVerb(app, raw);
  AddGet(app, raw);
  AddTop(app, raw);
  AddTraces(app, raw);
  AddDescribe(app, raw);
  AddExplain(app, raw);
  AddModel(app, raw);
  AddCertsVerb(app, &raw.line.certs);
  AddDoctorVerb(app, &raw.line.doctor);
  AddConfig(app, raw);
  AddCompletion(app, raw);
  AddVersion(app, raw);
}

}  // namespace switchyard::ctl
