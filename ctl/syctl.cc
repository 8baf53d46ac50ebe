#include "ctl/syctl.h"

#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/cli/exit_code.h"
#include "ctl/command_line.h"
#include "ctl/commands.h"
#include "ctl/completion.h"
#include "ctl/config.h"
#include "ctl/coordinator_client.h"
#include "ctl/errors.h"
#include "ctl/output/format.h"
#include "services/config/security_files.h"
#include "services/config/yaml_text.h"

namespace switchyard::ctl {
namespace {

// `status` is not OK.
int ExitCodeOf(const absl::Status& status, const CommandLine& line) {
  // Its 1 stands for differences.
  if (line.verb == Verb::kDiff) return kExitUsage;
  // It reads no other file than its own.
  if (line.verb == Verb::kConfig && absl::IsInvalidArgument(status)) return kExitUsage;
  // The file that the command line names, and not one of the coordinator.
  const std::string file = MetadataOf(status)["file"];
  const bool named = !file.empty() && (file == line.file || file == NameOfFile(line.file));
  return named && ReasonOf(status) == Reason::kBadConfig ? kExitUsage : kExitFailed;
}

// How output is written, and errors.
struct Form {
  OutputFormat format = OutputFormat::kTable;
  bool no_headers = false;
  bool color = false;
  bool color_errors = false;
};

Form FormOf(const CommandLine& line, const Terminal& terminal, const Environment& environment) {
  // Programs that read a pipe get JSON by default, people at a terminal get tables.
  const OutputFormat natural = terminal.is_terminal ? OutputFormat::kTable : OutputFormat::kJson;
  const bool may = line.color == Color::kAuto && !environment.no_color;
  const bool always = line.color == Color::kAlways;
  Form form;
  form.format = line.output.value_or(natural);
  const bool table = line.verb == Verb::kTop || line.verb == Verb::kConfig ||
                     (line.verb == Verb::kGet && line.kind != Kind::kPlan);
  form.no_headers = line.no_headers && table;
  form.color = always || (may && terminal.is_terminal);
  form.color_errors = always || (may && terminal.errors_are_shown);
  return form;
}

// Returns what a command printed in the form that was asked for.
std::string Formatted(const std::string& printed, const Form& form, const CommandLine& line) {
  if (!IsText(form.format)) return FormatDocuments(printed, form.format, line.json_path);
  const std::string text = form.no_headers ? WithoutHead(printed) : printed;
  return form.color ? Colored(text) : text;
}

}  // namespace

SyctlResult RunSyctl(const std::vector<std::string>& words, const Terminal& terminal,
                     const Viewer& viewer, const Environment& environment) {
  if (!words.empty() && words[0] == kCompleteWord) {
    return {0, Complete({words.begin() + 1, words.end()}, environment), ""};
  }
  ParsedCommandLine parsed = ParseCommandLine(words);
  if (!parsed.line.has_value()) {
    if (parsed.exit_code == 0) return {0, parsed.text, ""};
    return {parsed.exit_code, "", parsed.text};
  }
  CommandLine& line = *parsed.line;
  const Form form = FormOf(line, terminal, environment);
  Screen screen{IsText(form.format) ? OutputFormat::kTable : OutputFormat::kJson, terminal.width,
                viewer, form.format == OutputFormat::kWide};
  // A line of "wide" is as long as it is.
  if (screen.wide) screen.width = 0;
  if (viewer.live) {
    screen.viewer.live = [&](const std::string& text) {
      return viewer.live(Formatted(text, form, line));
    };
  }
  SyctlResult result;
  absl::Status status = UseContext(environment, &line);
  absl::StatusOr<std::shared_ptr<const TransportSecurity>> security = nullptr;
  if (status.ok()) {
    security = OpenSecurity(line.tls_dir, /*logger=*/nullptr);
    status = security.status();
    // The checkup has a line for what is wrong with a certificate.
    if (line.verb == Verb::kDoctor && !status.ok()) {
      security = nullptr;
      status = absl::OkStatus();
    }
  }
  const bool usable = status.ok();
  if (usable) {
    CoordinatorClient coordinator(line.target, line.timeout, *security);
    status = RunCommand(line, coordinator, screen, &result);
  }
  // Nor does a sentence that a list is empty belong among its lines.
  if (form.no_headers && IsText(form.format) && WithoutHead(result.out) == result.out) {
    result.out.clear();
  }
  result.out = Formatted(result.out, form, line);
  if (status.ok()) return result;
  result.exit_code = usable ? ExitCodeOf(status, line) : kExitUsage;
  result.err = ErrorText(status);
  if (form.color_errors) result.err = ColoredError(result.err);
  // On stdout as well, so that a program that reads the pipe sees the reason. Names and the values
  // of a path are words of a command line, where an error would be taken for one.
  const bool object = !IsText(form.format) && form.format != OutputFormat::kName &&
                      form.format != OutputFormat::kJsonPath;
  if (object) result.out += FormatDocuments(Print(ErrorObject(status)), form.format, "");
  return result;
}

}  // namespace switchyard::ctl
