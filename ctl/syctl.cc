#include "ctl/syctl.h"

#include "core/base/error.h"
#include "core/cli/exit_code.h"
#include "ctl/command_line.h"
#include "ctl/commands.h"
#include "ctl/coordinator_client.h"
#include "ctl/errors.h"
#include "services/config/yaml_text.h"

namespace switchyard::ctl {
namespace {

// `status` is not OK.
int ExitCodeOf(const absl::Status& status, const CommandLine& line) {
  // Its 1 stands for differences.
  if (line.verb == Verb::kDiff) return kExitUsage;
  // The file that the command line names, and not one of the coordinator.
  const std::string file = MetadataOf(status)["file"];
  const bool named = !file.empty() && (file == line.file || file == NameOfFile(line.file));
  return named && ReasonOf(status) == Reason::kBadConfig ? kExitUsage : kExitFailed;
}

}  // namespace

SyctlResult RunSyctl(const std::vector<std::string>& words, const Terminal& terminal,
                     const Viewer& viewer) {
  const ParsedCommandLine parsed = ParseCommandLine(words);
  if (!parsed.line.has_value()) {
    if (parsed.exit_code == 0) return {0, parsed.text, ""};
    return {parsed.exit_code, "", parsed.text};
  }
  // Programs that read a pipe get JSON by default, people at a terminal get tables.
  const OutputFormat natural = terminal.is_terminal ? OutputFormat::kTable : OutputFormat::kJson;
  const Screen screen{parsed.line->output.value_or(natural), terminal.width, viewer};
  CoordinatorClient coordinator(parsed.line->target, parsed.line->timeout);
  SyctlResult result;
  const absl::Status status = RunCommand(*parsed.line, coordinator, screen, &result);
  if (status.ok()) return result;
  result.exit_code = ExitCodeOf(status, *parsed.line);
  result.err = ErrorText(status);
  // On stdout as well, so that a program that reads the pipe sees the reason.
  if (screen.format == OutputFormat::kJson) result.out += Print(ErrorObject(status));
  return result;
}

}  // namespace switchyard::ctl
