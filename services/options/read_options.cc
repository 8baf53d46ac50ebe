#include "services/options/read_options.h"

#include <filesystem>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status BadOption(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, what);
}

bool IsFlag(absl::string_view where) { return absl::StartsWith(where, "--"); }

// "worker.yaml:7: memory.load_threads: WHAT"; a flag is its own place.
absl::Status BadValue(const GivenOption& given, absl::string_view what) {
  if (IsFlag(given.where)) return BadOption(absl::StrCat(given.where, ": ", what));
  return BadOption(absl::StrCat(given.where, ": ", given.key, ": ", what));
}

// The places of a rule's values: "a.yaml:3, --retry-last".
std::string PlacesOf(const OptionRule& rule, const OptionOrigins& origins) {
  std::vector<std::string> places;
  for (const std::string& key : rule.keys) {
    const auto found = origins.find(key);
    if (found != origins.end()) places.push_back(found->second);
  }
  return absl::StrJoin(places, ", ");
}

// Some checks name the flag of the value that is wrong themselves; in a file it has another name.
std::string NamedByKey(const OptionTable& table, const OptionRule& rule, std::string wrong) {
  for (const std::string& key : rule.keys) {
    const Option* option = table.Find(key);
    if (option == nullptr || !absl::StartsWith(wrong, option->flag + ":")) continue;
    return key + wrong.substr(option->flag.size());
  }
  return wrong;
}

std::string DefaultText(const Option& option) {
  if (!option.unset.empty()) return option.unset;
  return option.fallback.empty() ? "none" : option.fallback;
}

// The flags as CLI11 reads them. Values stay texts, so that files and flags are read by one parser.
struct Flags {
  std::map<std::string, std::vector<std::string>> values;  // by key
  std::string config;
  bool print = false;
};

void AddFlags(const OptionTable& table, CLI::App& app, Flags& flags) {
  app.set_help_flag("-h,--help", "Print this help and exit");
  AddVersionFlag(app);
  app.add_option("--config", flags.config,
                 "File with the keys that follow each flag, in YAML; flags go before it; -: "
                 "standard input")
      ->type_name("FILE");
  app.add_flag("--print-config", flags.print,
               "Print the effective configuration, and where each value comes from, and exit");
  for (const OptionSection& section : table.sections) {
    for (const Option& option : table.options) {
      if (!absl::StartsWith(option.key, section.name + ".")) continue;
      auto* flag =
          app.add_option(option.flag, flags.values[option.key],
                         absl::StrCat(option.help, option.range.empty() ? "" : " (", option.range,
                                      option.range.empty() ? "" : ")", "; default: ",
                                      option.required ? "none, required" : DefaultText(option),
                                      "; key ", option.key))
              ->type_name(option.type)
              ->group(section.name + ": " + section.about)
              ->allow_extra_args(false);
      if (!option.list) flag->multi_option_policy(CLI::MultiOptionPolicy::Throw)->expected(1);
    }
  }
  app.footer(table.footer);
}

std::vector<GivenOption> GivenFlags(const OptionTable& table, const Flags& flags) {
  std::vector<GivenOption> given;
  for (const Option& option : table.options) {
    const auto& values = flags.values.at(option.key);
    if (!values.empty()) given.push_back({option.key, values, option.flag});
  }
  return given;
}

absl::StatusOr<OptionOrigins> Resolve(const OptionTable& table, const Flags& flags) {
  std::vector<GivenOption> given;
  if (!flags.config.empty()) {
    SY_ASSIGN_OR_RETURN(given, ReadOptionFile(table, flags.config));
  }
  for (GivenOption& flag : GivenFlags(table, flags)) given.push_back(std::move(flag));
  return ApplyOptions(table, given);
}

// A value as a YAML scalar. Single quotes need no escapes but for themselves.
std::string YamlText(const std::string& value) {
  const bool plain = !value.empty() &&
                     value.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyz"
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._/:-") == std::string::npos &&
                     value.back() != ':' && value.front() != '-';
  if (plain) return value;
  std::string quoted = "'";
  for (const char c : value) quoted.append(c == '\'' ? 2 : 1, c);
  return quoted + "'";
}

}  // namespace

absl::StatusOr<OptionOrigins> ApplyOptions(const OptionTable& table,
                                           const std::vector<GivenOption>& given) {
  OptionOrigins origins;
  for (const GivenOption& each : given) {
    const Option* option = table.Find(each.key);
    if (option == nullptr) return BadValue(each, "no such key");
    if (each.values.empty()) continue;  // an empty list: as if the key were not there
    if (const std::string wrong = option->set(each.values); !wrong.empty()) {
      return BadValue(each, wrong);
    }
    origins[each.key] = each.where;
  }
  for (const Option& option : table.options) {
    if (!option.required || !option.get().empty()) continue;
    return BadOption(absl::StrCat(option.flag, " is required; give it, or ", option.key,
                                  " in the file of --config"));
  }
  for (const OptionRule& rule : table.rules) {
    const std::string wrong = rule.wrong();
    if (wrong.empty()) continue;
    const std::string places = PlacesOf(rule, origins);
    // Some checks name the flag themselves.
    const bool named = places.empty() || (IsFlag(wrong) && IsFlag(places));
    return BadOption(named ? wrong : absl::StrCat(places, ": ", NamedByKey(table, rule, wrong)));
  }
  return origins;
}

std::string PrintOptions(const OptionTable& table, const OptionOrigins& origins) {
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  std::string out = absl::StrCat("# The configuration of ", table.program, ".\n");
  for (const OptionSection& section : table.sections) {
    absl::StrAppend(&out, section.name, ":\n");
    for (const Option& option : table.options) {
      if (!absl::StartsWith(option.key, section.name + ".")) continue;
      std::vector<std::string> values = option.get();
      for (std::string& value : values) {
        // So that the text means the same as a file in any folder.
        if (option.in_file != nullptr) value = option.in_file(value, folder);
        value = YamlText(value);
      }
      const std::string text = option.list ? absl::StrCat("[", absl::StrJoin(values, ", "), "]")
                                           : absl::StrJoin(values, "");
      const auto origin = origins.find(option.key);
      std::string from = origin == origins.end() ? "default" : origin->second;
      if (origin == origins.end() && !option.unset.empty()) {
        absl::StrAppend(&from, ": ", option.unset);
      }
      std::string line =
          absl::StrCat(values.empty() ? "  # " : "  ", option.key.substr(section.name.size() + 1),
                       ": ", values.empty() ? "" : text);
      if (line.size() < 40) line.resize(40, ' ');
      absl::StrAppend(&out, line, "  # ", from, "\n");
    }
  }
  return out;
}

std::optional<ProgramEnd> ReadOptions(const OptionTable& table,
                                      const std::vector<std::string>& words) {
  CLI::App app(table.about, table.program);
  Flags flags;
  AddFlags(table, app, flags);
  for (const std::string& word : words) {
    if (table.check_flag == nullptr || !IsFlag(word)) continue;
    if (const absl::Status name = table.check_flag(word); !name.ok()) {
      return UsageMistake(table.program, name.message());
    }
  }
  if (auto end = ParseWords(app, words)) return end;
  const absl::StatusOr<OptionOrigins> origins = Resolve(table, flags);
  if (!origins.ok()) return UsageMistake(table.program, origins.status().message());
  if (flags.print) return ProgramEnd{kExitDone, PrintOptions(table, *origins)};
  return std::nullopt;
}

}  // namespace switchyard
