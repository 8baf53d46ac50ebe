// Command lines of all programs, over CLI11: one way to say what is wrong, to ask for help and for
// the version. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/cli/cli11.h"
#include "core/cli/exit_code.h"

namespace switchyard {

// How a program ends that does not get to run.
struct ProgramEnd {
  int exit_code = kExitUsage;
  std::string text;
};

// "switchyard-worker 0.1.0", with a line end.
std::string VersionText(absl::string_view program);

// Adds --version. `app` has the program's name.
void AddVersionFlag(CLI::App& app);

// Parses the arguments, without the program's name, into what `app` refers to. Returns nullopt if
// they are valid; the help or the version with kExitDone; else the mistake with kExitUsage.
std::optional<ProgramEnd> ParseWords(CLI::App& app, const std::vector<std::string>& words);

// The manual page of `app`, if `words` ask for it (core/cli/man_page.h). ParseWords looks itself.
std::optional<ProgramEnd> ManPageFor(const CLI::App& app, const std::vector<std::string>& words);

// The words of argv, without the program's name.
std::vector<std::string> WordsOf(int argc, const char* const* argv);

// Prints the text, to stderr if it is a mistake. Returns the exit code.
int Print(const ProgramEnd& end);

// A mistake on the command line of `command` ("syctl apply"), and where to look.
ProgramEnd UsageMistake(absl::string_view command, absl::string_view what);

// Says what `error` found wrong, with the nearest option of `app` for one that it does not have.
// `app` is the program or the subcommand that was parsed.
std::string MistakeText(const CLI::App& app, const CLI::ParseError& error);

}  // namespace switchyard
