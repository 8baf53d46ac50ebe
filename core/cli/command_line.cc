#include "core/cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/product_version.h"
#include "core/base/suggest.h"
#include "core/cli/man_page.h"

namespace switchyard {
namespace {

// The options that `app` takes, its parents' included: with fallthrough they are valid as well.
std::vector<std::string> OptionNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    for (const CLI::App* group : app->get_subcommands([](const CLI::App*) { return true; })) {
      if (!group->get_name().empty()) continue;  // a subcommand; groups have no name
      for (const CLI::Option* option : group->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    }
  }
  return names;
}

template <typename Kind>
bool Is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

// True for an option of the chosen subcommand that takes no value.
bool IsFlag(const CLI::App& app, const std::string& name) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  const CLI::Option* option = chosen->get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_max() == 0;
}

// Says what is wrong with an argument that nothing takes.
std::string Unexpected(const CLI::App& app, const std::string& word) {
  if (!absl::StartsWith(word, "-") || word == "-") {
    return absl::StrCat("unexpected argument \"", word, "\"");
  }
  const std::string option = word.substr(0, word.find('='));
  // Most programs show their version for one of these, and some log more.
  const bool version = option == "-v" || option == "-V";
  const std::string near = version ? "--version" : NearestWord(option, OptionNames(&app));
  return absl::StrCat("unknown option ", option,
                      near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"));
}

}  // namespace

std::string VersionText(absl::string_view program) {
  return absl::StrCat(program, " ", kProductVersion, "\n");
}

void AddVersionFlag(CLI::App& app) {
  app.set_version_flag("--version", VersionText(app.get_name()), "Print the version and exit");
}

std::optional<ProgramEnd> ManPageFor(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() != 2 || words[0] != kManPageFlag) return std::nullopt;
  return ProgramEnd{kExitDone, ManPage(app, words[1])};
}

std::optional<ProgramEnd> ParseWords(CLI::App& app, const std::vector<std::string>& words) {
  if (auto page = ManPageFor(app, words)) return page;
  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    return std::nullopt;
    // CLI11 reports by exceptions; they end here.
  } catch (const CLI::CallForHelp& help) {
    std::ostringstream out;
    app.exit(help, out, out);
    return ProgramEnd{kExitDone, out.str()};
  } catch (const CLI::CallForVersion& version) {
    return ProgramEnd{kExitDone, version.what()};
  } catch (const CLI::ParseError& error) {
    return UsageMistake(app.get_name(), MistakeText(app, error));
  }
}

std::vector<std::string> WordsOf(int argc, const char* const* argv) {
  return {argv + (argc > 0 ? 1 : 0), argv + argc};
}

int Print(const ProgramEnd& end) {
  std::FILE* const stream = end.exit_code == kExitDone ? stdout : stderr;
  std::fputs(end.text.c_str(), stream);
  std::fflush(stream);
  return end.exit_code;
}

ProgramEnd UsageMistake(absl::string_view command, absl::string_view what) {
  const absl::string_view program = command.substr(0, command.find(' '));
  return {kExitUsage,
          absl::StrCat(program, ": ", what, "\nnext: '", command, " --help' shows the usage\n")};
}

std::string MistakeText(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = error.what();
  if (Is<CLI::ExtrasError>(error) || Is<CLI::RequiredError>(error)) {
    // A misspelled option is the reason why the one that it stands for is missing.
    const std::vector<std::string> left = app.remaining(/*recurse=*/true);
    if (!left.empty()) return Unexpected(app, left.front());
  }
  if (Is<CLI::ConversionError>(error)) {
    absl::string_view given = what;
    if (absl::ConsumePrefix(&given, "Could not convert: ")) {
      const std::size_t equals = given.find(" = ");
      const std::string name(given.substr(0, std::min(equals, given.size())));
      if (IsFlag(app, name)) return absl::StrCat(name, " takes no value");
      if (equals != absl::string_view::npos) {
        return absl::StrCat(given.substr(0, equals), ": \"", given.substr(equals + 3),
                            "\" is not a number of its range");
      }
    }
  }
  if (Is<CLI::ArgumentMismatch>(error)) {
    const std::string option = what.substr(0, what.find(':'));
    if (absl::StrContains(what, "missing") || absl::StrContains(what, "but received 0")) {
      return absl::StrCat(option, " needs a value");
    }
    if (absl::StrContains(what, "At Most 1")) return absl::StrCat(option, " is given twice");
  }
  return what;
}

}  // namespace switchyard
