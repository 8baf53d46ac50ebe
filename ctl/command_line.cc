#include "ctl/command_line.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/cli/command_line.h"
#include "ctl/completion.h"
#include "ctl/output/json_path.h"
#include "ctl/verbs.h"

namespace switchyard::ctl {
namespace {

constexpr double kCallTimeoutSeconds = 10;
// An apply is answered at once, but 'diff' waits for the weights to be read, and so does an apply
// with --wait.
constexpr double kApplyTimeoutSeconds = 1800;
constexpr double kWaitTimeoutSeconds = 300;
// A checkup as a whole, and each of its calls: one that is silent must not hide the others.
constexpr double kCheckupTimeoutSeconds = 30;
constexpr double kCheckupCallSeconds = 5;

// Usage errors name the command whose help answers them.
ParsedCommandLine Usage(const std::string& what, const std::string& verb) {
  ProgramEnd end = UsageMistake(absl::StrCat("syctl", verb.empty() ? "" : " ", verb), what);
  return {std::nullopt, end.exit_code, std::move(end.text)};
}

// The first of `words` that is not an option, if it is not a verb either. CLI11's own error for it
// only says that a subcommand is missing.
std::string UnknownVerb(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    // The value of an option that may stand before the verb is none.
    static const std::set<std::string> kWithValue{"--target",  "--tls-dir", "-o",     "--output",
                                                  "--timeout", "--context", "--color"};
    if (kWithValue.contains(word)) ++i;
    if (word.empty() || word[0] == '-') continue;
    const bool known = std::find(Verbs().begin(), Verbs().end(), word) != Verbs().end();
    return known ? "" : word;
  }
  return "";
}

// "get worker/w0" as "get worker w0", which the other verbs do for themselves.
std::vector<std::string> WithoutSlash(std::vector<std::string> words) {
  const auto verb = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word == "get" || word == "describe";
  });
  if (verb == words.end() || verb + 1 == words.end()) return words;
  const std::string object = *(verb + 1);
  const std::size_t slash = object.find('/');
  const bool is_kind = std::any_of(std::begin(kKinds), std::end(kKinds), [&](const KindWord& kind) {
    return object.compare(0, slash, kind.one) == 0 || object.compare(0, slash, kind.many) == 0;
  });
  if (slash == std::string::npos || !is_kind) return words;
  *(verb + 1) = object.substr(0, slash);
  words.insert(verb + 2, object.substr(slash + 1));
  return words;
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
std::string FinishObject(const RawCommandLine& raw, CommandLine* line) {
  switch (line->verb) {
    case Verb::kDelete:
    case Verb::kRollback:
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

// A name after these kinds is that of the deployment.
std::string FinishGet(CommandLine* line) {
  const bool of_deployment = line->kind == Kind::kLayers || line->kind == Kind::kPlan ||
                             line->kind == Kind::kRevisions || line->kind == Kind::kSessions;
  if (line->verb != Verb::kGet || !of_deployment || line->name.empty()) return "";
  if (!line->deployment.empty() && line->deployment != line->name) {
    return absl::StrCat("two deployments are named, ", line->name, " and ", line->deployment);
  }
  line->deployment = line->name;
  return "";
}

// Returns what is wrong with -o; empty: nothing is.
std::string FinishOutput(const RawCommandLine& raw, CommandLine* line) {
  static const std::map<std::string, OutputFormat> kFormats{
      {"table", OutputFormat::kTable},     {"wide", OutputFormat::kWide},
      {"json", OutputFormat::kJson},       {"yaml", OutputFormat::kYaml},
      {"jsonl", OutputFormat::kJsonLines}, {"name", OutputFormat::kName}};
  static const std::map<std::string, Color> kColors{
      {"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}};
  line->color = kColors.at(raw.color);
  // Unset: RunSyctl chooses by whether the output is a terminal.
  if (raw.output.empty()) return "";
  constexpr absl::string_view kPathPrefix = "jsonpath=";
  if (absl::StartsWith(raw.output, kPathPrefix)) {
    line->output = OutputFormat::kJsonPath;
    line->json_path = raw.output.substr(kPathPrefix.size());
    return std::string(JsonPath::Parse(line->json_path).status().message());
  }
  const auto found = kFormats.find(raw.output);
  if (found == kFormats.end()) {
    return absl::StrCat("--output: \"", raw.output,
                        "\" is not one of table, wide, json, yaml, jsonl, name, jsonpath=TEMPLATE");
  }
  line->output = found->second;
  const bool lists =
      line->verb == Verb::kGet && line->kind != Kind::kPlan && line->kind != Kind::kMetrics;
  const bool named = lists || line->verb == Verb::kApply || line->verb == Verb::kConfig;
  if (line->output == OutputFormat::kName && !named) {
    return "-o name suits 'get', except 'get plan' and 'get metrics', and 'apply'; use json or "
           "jsonpath=";
  }
  return "";
}

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

ParsedCommandLine Finish(RawCommandLine raw, const std::string& verb) {
  const std::map<std::string, Verb> verbs{
      {"apply", Verb::kApply},     {"diff", Verb::kDiff},     {"rollback", Verb::kRollback},
      {"delete", Verb::kDelete},   {"cordon", Verb::kCordon}, {"uncordon", Verb::kUncordon},
      {"drain", Verb::kDrain},     {"wait", Verb::kWait},     {"top", Verb::kTop},
      {"traces", Verb::kTraces},   {"get", Verb::kGet},       {"describe", Verb::kDescribe},
      {"explain", Verb::kExplain}, {"model", raw.model_verb}, {"certs", Verb::kCerts},
      {"doctor", Verb::kDoctor},   {"config", Verb::kConfig}, {"version", Verb::kVersion}};
  if (verb == "completion") return {std::nullopt, 0, CompletionScript(raw.kind)};
  CommandLine& line = raw.line;
  line.verb = verbs.at(verb);
  if (std::string wrong = FinishOutput(raw, &line); !wrong.empty()) return Usage(wrong, verb);
  // An explicit timeout of 0 is refused by its range, so 0 means that none was given.
  const bool applies = line.verb == Verb::kApply || line.verb == Verb::kDiff;
  const bool checks = line.verb == Verb::kDoctor;
  const bool waits = line.wait || line.verb == Verb::kWait || checks;
  const double call_s = applies  ? kApplyTimeoutSeconds
                        : checks ? kCheckupCallSeconds
                                 : kCallTimeoutSeconds;
  const double wait_s = applies  ? kApplyTimeoutSeconds
                        : checks ? kCheckupTimeoutSeconds
                                 : kWaitTimeoutSeconds;
  const bool given = raw.timeout_s > 0;
  line.wait_timeout = Seconds(given ? raw.timeout_s : wait_s);
  if (line.verb == Verb::kTraces && !given) line.wait_timeout = {};  // as long as somebody reads
  line.timeout = Seconds(!given ? call_s : waits ? std::min(raw.timeout_s, call_s) : raw.timeout_s);
  if (std::string wrong = FinishObject(raw, &line); !wrong.empty()) return Usage(wrong, verb);
  if (raw.phase == "prefill") line.phase = v1::PHASE_PREFILL;
  if (raw.phase == "decode") line.phase = v1::PHASE_DECODE;
  if (raw.phase == "mixed") line.phase = v1::PHASE_MIXED;
  if (line.name.empty()) line.name = raw.name;
  if (std::string wrong = FinishGet(&line); !wrong.empty()) return Usage(wrong, verb);
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

ParsedCommandLine ParseCommandLine(const std::vector<std::string>& given) {
  const std::vector<std::string> words = WithoutSlash(given);
  RawCommandLine raw;
  CLI::App app("Operates a Switchyard coordinator.", "syctl");
  app.require_subcommand(1);
  // Global options are accepted before and after the verb.
  app.fallthrough();
  AddVersionFlag(app);
  AddVerbs(app, raw);
  app.footer(
      "Examples:\n"
      "  syctl apply -f deployment.yaml\n"
      "  syctl get workers\n"
      "  syctl explain layer 0\n"
      "  syctl model inspect models/sqlite-moe-7m\n"
      "'syctl VERB --help' shows more. Exit codes: 0 success, 1 refused or failed, 2 usage "
      "error; of diff: 0 no difference, 1 differences, 2 error.\n");
  if (const auto page = ManPageFor(app, given)) return {std::nullopt, 0, page->text};
  std::string verb;
  try {
    // CLI11 expects the arguments in reverse order.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    verb = app.get_subcommands().front()->get_name();
    raw.line.target_given = app.count("--target") > 0;
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
