#include "ctl/completion.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/cli/command_line.h"
#include "ctl/config.h"
#include "ctl/contexts.h"
#include "ctl/coordinator_client.h"
#include "ctl/verbs.h"

namespace switchyard::ctl {
namespace {

using Words = std::vector<std::string>;

// Somebody waits with a finger on the key.
constexpr Duration kAnswerMax = std::chrono::seconds(1);

constexpr char kFiles[] = ":files";

// The command line before the word that is completed.
struct Typed {
  CLI::App* app = nullptr;             // the verb, or the whole program
  const CLI::Option* needs = nullptr;  // the option whose value is completed
  Words verbs;
  Words objects;  // words that are neither verbs nor options
  CommandLine line;
};

const CLI::Option* FindOption(const CLI::App* app, const std::string& word) {
  for (; app != nullptr; app = app->get_parent()) {
    if (const CLI::Option* option = app->get_option_no_throw(word)) return option;
  }
  return nullptr;
}

CLI::App* FindVerb(CLI::App* app, const std::string& word) {
  const auto verbs =
      app->get_subcommands([&word](const CLI::App* each) { return each->get_name() == word; });
  return verbs.empty() ? nullptr : verbs.front();
}

// Where names are looked up.
void NoteTarget(const CLI::Option& option, const std::string& value, CommandLine* line) {
  if (option.check_name("--target")) {
    line->target = value;
    line->target_given = true;
  }
  if (option.check_name("--context")) line->context = value;
}

Typed Read(CLI::App* app, const Words& words) {
  Typed typed;
  typed.app = app;
  typed.line.verb = Verb::kGet;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (absl::StartsWith(word, "-")) {
      const std::size_t equals = word.find('=');
      const CLI::Option* const option = FindOption(typed.app, word.substr(0, equals));
      if (option == nullptr || option->get_expected_max() == 0) continue;
      if (equals != std::string::npos) {
        NoteTarget(*option, word.substr(equals + 1), &typed.line);
      } else if (i + 2 == words.size()) {
        typed.needs = option;
      } else {
        NoteTarget(*option, words[++i], &typed.line);
      }
    } else if (CLI::App* const verb = FindVerb(typed.app, word)) {
      typed.app = verb;
      typed.verbs.push_back(word);
    } else {
      typed.objects.push_back(word);
    }
  }
  return typed;
}

Words ContextNames(const Environment& environment) {
  Words names;
  const auto contexts = ReadContexts(environment.contexts_path);
  if (!contexts.ok()) return names;
  for (const Context& each : contexts->all) names.push_back(each.name);
  return names;
}

// The names of the objects of `kind`, or of the deployments that have them.
Words NamesOf(Kind kind, const Environment& environment, CommandLine line) {
  Words names;
  if (!UseContext(environment, &line).ok() || !CheckTarget(line.target).empty()) return names;
  CoordinatorClient coordinator(line.target, kAnswerMax);
  if (kind == Kind::kWorkers || kind == Kind::kEvents) {
    const auto list = coordinator.Workers();
    if (!list.ok()) return names;
    for (const v1::Worker& each : list->workers()) names.push_back(each.id());
    if (kind == Kind::kWorkers) return names;
  }
  if (kind == Kind::kModels) {
    const auto list = coordinator.Models();
    if (!list.ok()) return names;
    for (const v1::Model& each : list->models()) names.push_back(each.name());
    return names;
  }
  const auto list = coordinator.Deployments();
  if (!list.ok()) return names;
  for (const v1::Deployment& each : list->deployments()) names.push_back(each.spec().name());
  return names;
}

Words ValuesOf(const Typed& typed, const Environment& environment) {
  const CLI::Option& option = *typed.needs;
  for (const char* file : {"--file", "--checkpoint", "--ring-dir", "--tls-dir"}) {
    if (option.check_name(file)) return {kFiles};
  }
  if (option.check_name("--scope")) return {"node", "all"};
  if (option.check_name("--output")) {
    return {"table", "wide", "json", "yaml", "jsonl", "name", "jsonpath="};
  }
  if (option.check_name("--color")) return {"auto", "always", "never"};
  if (option.check_name("--context")) return ContextNames(environment);
  if (option.check_name("--for")) return {"serving", "deleted", "live", "drained"};
  if (option.check_name("--phase")) return {"prefill", "decode", "mixed"};
  if (option.check_name("--deployment")) {
    return NamesOf(Kind::kDeployments, environment, typed.line);
  }
  return {};
}

// The kinds of objects that a verb takes before a name.
std::vector<Kind> KindsOf(const std::string& verb) {
  if (verb == "describe") {
    return {Kind::kDeployments, Kind::kModels, Kind::kWorkers, Kind::kLayers};
  }
  if (verb == "explain") return {Kind::kLayers};
  if (verb == "delete" || verb == "rollback") return {Kind::kDeployments};
  if (verb == "wait") return {Kind::kDeployments, Kind::kWorkers};
  if (verb == "cordon" || verb == "uncordon" || verb == "drain") return {Kind::kWorkers};
  std::vector<Kind> all;
  for (const KindWord& row : kKinds) all.push_back(row.kind);
  return verb == "get" ? all : std::vector<Kind>{};
}

Words ObjectsOf(const Typed& typed, const Environment& environment) {
  const std::string& verb = typed.verbs.front();
  if (verb == "config") {
    const bool named = typed.verbs.size() > 1 && absl::EndsWith(typed.verbs[1], "-context") &&
                       typed.verbs[1] != "current-context";
    return named && typed.objects.empty() ? ContextNames(environment) : Words{};
  }
  if (verb == "completion") return {"bash", "zsh", "fish"};
  if (verb == "model") return {kFiles};
  if (verb == "top" && typed.objects.empty()) {
    return NamesOf(Kind::kWorkers, environment, typed.line);
  }
  Words words;
  for (const KindWord& row : kKinds) {
    const std::vector<Kind> kinds = KindsOf(verb);
    if (std::find(kinds.begin(), kinds.end(), row.kind) == kinds.end()) continue;
    if (typed.objects.empty()) words.emplace_back(verb == "get" ? row.many : row.one);
    const bool said =
        typed.objects.size() == 1 && (typed.objects[0] == row.one || typed.objects[0] == row.many);
    // The number of a layer is no name.
    const bool number = row.kind == Kind::kLayers && verb != "get";
    if (said && !number) return NamesOf(row.kind, environment, typed.line);
  }
  return words;
}

Words OptionsOf(const CLI::App* app) {
  Words words;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  }
  return words;
}

constexpr char kBash[] = R"sh(# Completion of syctl for bash; needs the package bash-completion.
_syctl() {
  local cur words cword IFS=$'\n'
  _get_comp_words_by_ref -n := cur words cword
  local found=($("${words[0]}" __complete "${words[@]:1:cword}" 2>/dev/null))
  if [ "${found[0]}" = :files ]; then
    compopt -o filenames
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=("${found[@]}")
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace
    __ltrim_colon_completions "$cur"
  fi
}
complete -F _syctl syctl
)sh";

constexpr char kZsh[] = R"sh(#compdef syctl
# Completion of syctl for zsh.
_syctl() {
  local -a found
  found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ ${found[1]} == :files ]]; then
    _files
  elif [[ -n ${found[1]} ]]; then
    compadd -a found
  fi
}
if [[ $funcstack[1] == _syctl ]]; then _syctl "$@"; else compdef _syctl syctl; fi
)sh";

constexpr char kFish[] = R"sh(# Completion of syctl for fish.
function __syctl_complete
    set -l words (commandline -opc)
    set -l found ($words[1] __complete $words[2..] "$(commandline -ct)" 2>/dev/null)
    if test "$found" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c syctl -f -a '(__syctl_complete)'
)sh";

}  // namespace

std::string Complete(const std::vector<std::string>& words, const Environment& environment) {
  RawCommandLine raw;
  CLI::App app("", "syctl");
  AddVersionFlag(app);
  AddVerbs(app, raw);
  const Typed typed = Read(&app, words);
  const std::string last = words.empty() ? "" : words.back();
  Words found;
  if (typed.needs != nullptr) {
    found = ValuesOf(typed, environment);
  } else if (absl::StartsWith(last, "-")) {
    found = OptionsOf(typed.app);
  } else if (const auto verbs =
                 typed.app->get_subcommands([](const CLI::App* /*each*/) { return true; });
             !verbs.empty()) {
    for (const CLI::App* verb : verbs) found.push_back(verb->get_name());
  } else {
    found = ObjectsOf(typed, environment);
  }
  std::string out;
  std::set<std::string> seen;  // a verb has some options of the program as well
  for (const std::string& word : found) {
    const bool fits = word == kFiles || absl::StartsWith(word, last);
    if (fits && seen.insert(word).second) absl::StrAppend(&out, word, "\n");
  }
  return out;
}

std::string CompletionScript(const std::string& shell) {
  if (shell == "bash") return kBash;
  return shell == "zsh" ? kZsh : kFish;
}

}  // namespace switchyard::ctl
