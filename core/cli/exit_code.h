// The exit codes of every program; docs/CONFIGURATION.md has them for operators.
#pragma once

namespace switchyard {

enum ExitCode : int {
  // The program did what it was started for; a service ended after SIGTERM or SIGINT.
  kExitDone = 0,
  // It failed or was refused. A check (verify, switchyard-eval) measured, and the result is outside
  // of its bounds.
  kExitFailed = 1,
  // It did not begin: the command line or a file that it names is wrong, so that another start
  // would end in the same way. A check measured nothing, for whatever reason.
  kExitUsage = 2
};

}  // namespace switchyard
