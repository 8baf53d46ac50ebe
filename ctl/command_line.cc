#include "ctl/command_line.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/suggest.h"
#include "core/base/units.h"
#include "core/cli/command_line.h"
#include "core/resolve/what_if.h"

namespace switchyard::ctl {
namespace {

constexpr double kCallTimeoutSeconds = 10;
// Long, because the coordinator hashes the whole checkpoint before it answers.
constexpr double kApplyTimeoutSeconds = 1800;
constexpr double kWaitTimeoutSeconds = 300;

constexpr char kGlobalOptions[] =
    "Options of every command:\n"
    "  --target HOST:PORT   the coordinator (default 127.0.0.1:7700)\n"
    "  -o table|json        output format (default: table on a terminal, else json)\n"
    "  --timeout TIME       timeout of each call (default 10s; apply: 30m), and of the whole wait\n"
    "                       with --wait and in wait (default 5m; apply: 30m); 90s, 5m, or "
    "seconds\n";

// Verb names in the order of the help; also the candidates for "did you mean".
const std::vector<std::string>& Verbs() {
  static const std::vector<std::string> verbs{"apply",   "delete", "cordon", "uncordon",
                                              "drain",   "wait",   "get",    "describe",
                                              "explain", "model",  "version"};
  return verbs;
}

// A word for a kind is accepted in singular and plural, because both read naturally after a verb.
struct KindWord {
  const char* one;
  const char* many;
  Kind kind;
};
constexpr KindWord kKinds[] = {{"deployment", "deployments", Kind::kDeployments},
                               {"model", "models", Kind::kModels},
                               {"worker", "workers", Kind::kWorkers},
                               {"layer", "layers", Kind::kLayers},
                               {"plan", "plan", Kind::kPlan}};

// With a near match the list of all words would only distract.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = NearestWord(word, known);
  return near.empty() ? absl::StrCat("; one of ", absl::StrJoin(known, ", "))
                      : absl::StrCat("; did you mean \"", near, "\"?");
}

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

// Checked here and not at the first call, so that a typo gives a usage error and not a timeout.
std::string CheckTarget(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  const bool good = colon != std::string::npos && colon > 0 &&
                    absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port < 65536;
  return good ? "" : absl::StrCat("\"", text, "\" is not \"host:port\"");
}

// Arguments as CLI11 stores them, before they become a CommandLine.
struct Raw {
  CommandLine line;
  std::string kind;
  std::string name;
  std::vector<std::string> object;  // "worker w0", "worker/w0" or "w0"
  std::string condition;
  std::string output;
  std::string phase;
  std::string edge;
  double timeout_s = 0;
};

void AddDeployment(CLI::App* verb, Raw& raw) {
  verb->add_option("--deployment", raw.line.deployment,
                   "The deployment; optional if there is only one");
}

void AddWait(CLI::App* verb, Raw& raw, const std::string& help) {
  verb->add_flag("--wait", raw.line.wait, help);
}

void AddApply(CLI::App& app, Raw& raw) {
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

// `name` is in the usage and in the error that it is missing.
void AddObject(CLI::App* verb, Raw& raw, const std::string& name, const std::string& help) {
  verb->add_option(name, raw.object, help)->required()->expected(1, 2);
}

void AddDelete(CLI::App& app, Raw& raw) {
  CLI::App* verb = app.add_subcommand("delete", "Delete a deployment once its sessions are closed");
  AddObject(verb, raw, "DEPLOYMENT", "deployment NAME");
  verb->add_flag("--now", raw.line.now, "End its sessions; steps that run have 5 s");
  AddWait(verb, raw, "Wait until it is gone");
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl delete deployment local --wait\n"
                            "  syctl delete deployment local --now\n"));
}

void AddWorkerVerbs(CLI::App& app, Raw& raw) {
  CLI::App* cordon =
      app.add_subcommand("cordon", "Keep a worker out of plans that it does not serve in");
  AddObject(cordon, raw, "WORKER", "worker ID");
  cordon->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl cordon worker w0\n"));
  CLI::App* uncordon = app.add_subcommand("uncordon", "Let plans use a worker again");
  AddObject(uncordon, raw, "WORKER", "worker ID");
  uncordon->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl uncordon worker w0\n"));
  CLI::App* drain = app.add_subcommand(
      "drain", "Move a worker's experts to the others; its process goes on, and may end then");
  AddObject(drain, raw, "WORKER", "worker ID");
  drain->add_flag("--force", raw.line.force,
                  "Also where the others cannot serve its deployments: it serves until they can");
  AddWait(drain, raw, "Wait until it holds nothing any more");
  drain->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl drain worker w0 --wait\n"));
}

void AddWaitVerb(CLI::App& app, Raw& raw) {
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

void AddGet(CLI::App& app, Raw& raw) {
  CLI::App* verb = app.add_subcommand("get", "List objects, one per line");
  verb->add_option("KIND", raw.kind, "deployments, models, workers, layers or plan")
      ->required()
      ->check(
          KindOf({Kind::kDeployments, Kind::kModels, Kind::kWorkers, Kind::kLayers, Kind::kPlan},
                 /*many=*/true, &raw.line.kind));
  AddDeployment(verb, raw);
  verb->add_flag("-w,--watch", raw.line.watch, "Print the list again whenever it changes");
  verb->footer(absl::StrCat(kGlobalOptions,
                            "Examples:\n"
                            "  syctl get workers\n"
                            "  syctl get deployments -w\n"
                            "  syctl get layers --deployment local\n"
                            "  syctl get plan -o json | jq .plan.epoch\n"));
}

void AddDescribe(CLI::App& app, Raw& raw) {
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

void AddExplain(CLI::App& app, Raw& raw) {
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
void AddModel(CLI::App& app, Raw& raw) {
  CLI::App* verb = app.add_subcommand("model", "Inspect a checkpoint; needs no coordinator");
  verb->require_subcommand(1);
  verb->footer("Example:\n  syctl model inspect models/sqlite-moe-7m\n");
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

void AddVersion(CLI::App& app, Raw& raw) {
  CLI::App* verb =
      app.add_subcommand("version", "Show the versions of this program and the coordinator");
  verb->add_flag("--client", raw.line.client_only, "Only this program; needs no coordinator");
  verb->footer(absl::StrCat(kGlobalOptions, "Example:\n  syctl version --client\n"));
}

// Replaces a duration with a unit by its seconds, and leaves anything else to the check of the
// number.
std::string ToSeconds(std::string& text) {
  if (const auto time = ParseDuration(text)) {
    text = absl::StrCat(std::chrono::duration<double>(*time).count());
  }
  return "";
}

void AddGlobalOptions(CLI::App& app, Raw& raw) {
  app.add_option("--target", raw.line.target, "The coordinator, as host:port")
      ->check(CLI::Validator(CheckTarget, ""))
      ->capture_default_str();
  app.add_option("-o,--output", raw.output,
                 "table or json; default: table on a terminal, else json")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--timeout", raw.timeout_s,
                 "Timeout, as 90s, 5m or a number of seconds: of each call (default 10s; apply: "
                 "30m), and of a wait as a whole (default 5m; apply: 30m)")
      ->transform(CLI::Validator(ToSeconds, ""))
      ->check(CLI::Range(0.001, 86400.0));
}

// Usage errors name the command whose help answers them.
ParsedCommandLine Usage(const std::string& what, const std::string& verb) {
  ProgramEnd end = UsageMistake(absl::StrCat("syctl", verb.empty() ? "" : " ", verb), what);
  return {std::nullopt, end.exit_code, std::move(end.text)};
}

// The first of `words` that is not an option, if it is not a verb either. CLI11's own error for it
// only says that a subcommand is missing.
std::string UnknownVerb(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.empty() || word[0] == '-') continue;
    const bool known = std::find(Verbs().begin(), Verbs().end(), word) != Verbs().end();
    return known ? "" : word;
  }
  return "";
}

// Splits "worker w0", "worker/w0" and, where only one of `kinds` is possible, "w0". Returns what is
// wrong; empty: nothing is.
std::string ReadObject(std::vector<std::string> words, const std::vector<Kind>& kinds,
                       CommandLine* line) {
  const auto row = [](Kind kind) {
    return *std::find_if(std::begin(kKinds), std::end(kKinds),
                         [kind](const KindWord& each) { return each.kind == kind; });
  };
  if (words.size() == 1) {
    const std::size_t slash = words[0].find('/');
    if (slash != std::string::npos) {
      words = {words[0].substr(0, slash), words[0].substr(slash + 1)};
    } else if (kinds.size() == 1 && kinds[0] == Kind::kWorkers) {
      words.insert(words.begin(), "worker");
    }
  }
  std::vector<std::string> known;
  for (const Kind kind : kinds) {
    known.emplace_back(row(kind).one);
    if (words[0] != row(kind).one && words[0] != row(kind).many) continue;
    line->kind = kind;
    if (words.size() < 2 || words[1].empty()) return absl::StrCat("name the ", row(kind).one);
    line->name = words[1];
    return "";
  }
  return absl::StrCat("unknown kind \"", words[0], "\"", DidYouMean(words[0], known));
}

// Reads what the verb acts on and waits for. Returns what is wrong; empty: nothing is.
std::string FinishObject(const Raw& raw, CommandLine* line) {
  switch (line->verb) {
    case Verb::kDelete:
      return ReadObject(raw.object, {Kind::kDeployments}, line);
    case Verb::kCordon:
    case Verb::kUncordon:
    case Verb::kDrain:
      return ReadObject(raw.object, {Kind::kWorkers}, line);
    case Verb::kWait:
      break;
    default:
      return "";
  }
  std::string wrong = ReadObject(raw.object, {Kind::kDeployments, Kind::kWorkers}, line);
  if (!wrong.empty()) return wrong;
  const bool worker = line->kind == Kind::kWorkers;
  if (worker != (raw.condition == "live" || raw.condition == "drained")) {
    return absl::StrCat(
        "--for ", raw.condition, " does not suit a ",
        worker ? "worker; one of live, drained" : "deployment; one of serving, deleted");
  }
  if (worker) {
    line->condition = raw.condition == "live" ? Condition::kLive : Condition::kDrained;
  } else {
    line->condition = raw.condition == "serving" ? Condition::kServing : Condition::kDeleted;
  }
  return "";
}

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

ParsedCommandLine Finish(Raw raw, const std::string& verb) {
  static const std::map<std::string, Verb> kVerbs{
      {"apply", Verb::kApply},     {"delete", Verb::kDelete},
      {"cordon", Verb::kCordon},   {"uncordon", Verb::kUncordon},
      {"drain", Verb::kDrain},     {"wait", Verb::kWait},
      {"get", Verb::kGet},         {"describe", Verb::kDescribe},
      {"explain", Verb::kExplain}, {"model", Verb::kModelInspect},
      {"version", Verb::kVersion}};
  CommandLine& line = raw.line;
  line.verb = kVerbs.at(verb);
  // Unset: RunSyctl chooses by whether the output is a terminal.
  if (!raw.output.empty()) {
    line.output = raw.output == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  }
  // An explicit timeout of 0 is refused by its range, so 0 means that none was given.
  const bool applies = line.verb == Verb::kApply;
  const bool waits = line.wait || line.verb == Verb::kWait;
  const double call_s = applies ? kApplyTimeoutSeconds : kCallTimeoutSeconds;
  const double wait_s = applies ? kApplyTimeoutSeconds : kWaitTimeoutSeconds;
  const bool given = raw.timeout_s > 0;
  line.wait_timeout = Seconds(given ? raw.timeout_s : wait_s);
  line.timeout = Seconds(!given ? call_s : waits ? std::min(raw.timeout_s, call_s) : raw.timeout_s);
  if (std::string wrong = FinishObject(raw, &line); !wrong.empty()) return Usage(wrong, verb);
  if (raw.phase == "prefill") line.phase = v1::PHASE_PREFILL;
  if (raw.phase == "decode") line.phase = v1::PHASE_DECODE;
  if (raw.phase == "mixed") line.phase = v1::PHASE_MIXED;
  if (line.name.empty()) line.name = raw.name;
  if (const std::size_t colon = raw.edge.find(':'); colon != std::string::npos) {
    line.edge_source = raw.edge.substr(0, colon);
    line.edge_worker = raw.edge.substr(colon + 1);
  }
  // The parser accepts any text here; a number that is too large fails with the same error.
  const bool one_layer =
      line.verb == Verb::kExplain || (line.verb == Verb::kDescribe && line.kind == Kind::kLayers);
  if (one_layer && !absl::SimpleAtoi(raw.name, &line.layer)) {
    return Usage(absl::StrCat("\"", raw.name, "\" is not a layer number"), verb);
  }
  return {std::move(line), 0, ""};
}

}  // namespace

ParsedCommandLine ParseCommandLine(const std::vector<std::string>& words) {
  Raw raw;
  CLI::App app("Operates a Switchyard coordinator.", "syctl");
  app.require_subcommand(1);
  // Global options are accepted before and after the verb.
  app.fallthrough();
  AddVersionFlag(app);
  AddGlobalOptions(app, raw);
  AddApply(app, raw);
  AddDelete(app, raw);
  AddWorkerVerbs(app, raw);
  AddWaitVerb(app, raw);
  AddGet(app, raw);
  AddDescribe(app, raw);
  AddExplain(app, raw);
  AddModel(app, raw);
  AddVersion(app, raw);
  app.footer(
      "Examples:\n"
      "  syctl apply -f deployment.yaml\n"
      "  syctl get workers\n"
      "  syctl explain layer 0\n"
      "  syctl model inspect models/sqlite-moe-7m\n"
      "'syctl VERB --help' shows more. Exit codes: 0 success, 1 refused or failed, 2 usage "
      "error.\n");
  std::string verb;
  try {
    // CLI11 expects the arguments in reverse order.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    verb = app.get_subcommands().front()->get_name();
  } catch (const CLI::CallForHelp& help) {
    std::ostringstream out;
    app.exit(help, out, out);
    return {std::nullopt, 0, out.str()};
  } catch (const CLI::CallForVersion& version) {
    return {std::nullopt, 0, version.what()};
  } catch (const CLI::ParseError& error) {
    // CLI11 keeps the subcommands that it parsed before the error.
    if (!app.get_subcommands().empty()) verb = app.get_subcommands().front()->get_name();
    const std::string unknown = verb.empty() ? UnknownVerb(words) : "";
    const std::string what = unknown.empty() ? MistakeText(app, error)
                                             : absl::StrCat("unknown verb \"", unknown, "\"",
                                                            DidYouMean(unknown, Verbs()));
    return Usage(what, verb);
  }
  return Finish(std::move(raw), verb);
}

}  // namespace switchyard::ctl
