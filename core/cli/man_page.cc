#include "core/cli/man_page.h"

#include <algorithm>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/product_version.h"

namespace switchyard {
namespace {

// Text as troff prints it: a plain "-" would become a hyphen, which nobody can paste.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
}

// A line of text. One that begins with a point or a quote would be a request.
std::string TextLine(absl::string_view line) {
  const bool request = absl::StartsWith(line, ".") || absl::StartsWith(line, "'");
  return absl::StrCat(request ? "\\&" : "", Escaped(line), "\n");
}

std::string Bold(absl::string_view text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(absl::string_view text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

// An argument of a macro.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(Escaped(text), {{"\"", "\\(dq"}}), "\"");
}

// "-o, --output FORMAT", or the name of an argument without a dash.
std::string NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back(Bold("-" + name));
  for (const std::string& name : option.get_lnames()) names.push_back(Bold("--" + name));
  if (names.empty()) return Italic(option.get_name(/*positional=*/true));
  std::string out;
  for (const std::string& name : names) absl::StrAppend(&out, out.empty() ? "" : ", ", name);
  // A check adds what it accepts behind a colon, as the help has it in words.
  std::string type = option.get_type_name();
  type.resize(std::min(type.find(':'), type.size()));
  if (!type.empty()) absl::StrAppend(&out, " ", Italic(absl::AsciiStrToUpper(type)));
  return out;
}

void AppendOption(const CLI::Option& option, std::string* out) {
  absl::StrAppend(out, ".TP\n", NamesOf(option), "\n");
  const std::string& help = option.get_description();
  *out += TextLine(help.empty() ? "(no description)" : help);
}

// The options of one group of `app`, below a heading where there is more than one group.
void AppendOptions(const CLI::App& app, std::string* out) {
  const std::vector<std::string> groups = app.get_groups();
  for (const std::string& group : groups) {
    if (group.empty()) continue;
    const auto options = app.get_options(
        [&group](const CLI::Option* option) { return option->get_group() == group; });
    if (options.empty()) continue;
    if (group != "Options") absl::StrAppend(out, ".SS ", Quoted(group), "\n");
    for (const CLI::Option* option : options) AppendOption(*option, out);
  }
}

// A footer keeps its lines: it has examples.
void AppendFooter(const CLI::App& app, std::string* out) {
  const std::string footer = app.get_footer();
  if (footer.empty()) return;
  if (!absl::EndsWith(*out, ".SH NOTES\n")) *out += ".PP\n";
  *out += ".nf\n";
  for (const absl::string_view line : absl::StrSplit(footer, '\n')) {
    if (!line.empty()) *out += TextLine(line);
  }
  *out += ".fi\n";
}

void AppendCommands(const CLI::App& app, const std::string& before, std::string* out) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* /*each*/) { return true; })) {
    const std::string name = absl::StrCat(before, " ", verb->get_name());
    absl::StrAppend(out, ".SS ", Quoted(name), "\n", TextLine(verb->get_description()));
    for (const CLI::Option* option : verb->get_options()) {
      // Each command has it.
      if (!option->check_name("--help")) AppendOption(*option, out);
    }
    AppendFooter(*verb, out);
    AppendCommands(*verb, name, out);
  }
}

}  // namespace

std::string ManPage(const CLI::App& app, absl::string_view section) {
  const std::string& name = app.get_name();
  const bool verbs = !app.get_subcommands([](const CLI::App* /*each*/) { return true; }).empty();
  const std::string about(absl::StripSuffix(app.get_description(), "."));
  std::string out = absl::StrCat(
      ".TH ", Quoted(absl::AsciiStrToUpper(name)), " ", section, " \"\" ",
      Quoted(absl::StrCat("Switchyard ", kProductVersion)), " \"Switchyard\"\n", ".SH NAME\n",
      Escaped(name), " \\- ", TextLine(about), ".SH SYNOPSIS\n.B ", Escaped(name), "\n",
      verbs ? TextLine("[OPTIONS] COMMAND [ARGUMENTS]") : TextLine("[OPTIONS]"), ".SH OPTIONS\n");
  AppendOptions(app, &out);
  if (verbs) {
    out += ".SH COMMANDS\n";
    AppendCommands(app, name, &out);
  }
  if (!app.get_footer().empty()) out += ".SH NOTES\n";
  AppendFooter(app, &out);
  return out;
}

}  // namespace switchyard
