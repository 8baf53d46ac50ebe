// Completes words of syctl's command line for shells, and has the scripts with which they ask.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "ctl/syctl.h"

namespace switchyard::ctl {

// The first word of the hidden command that shells call.
inline constexpr char kCompleteWord[] = "__complete";

// The words that may stand in place of the last of `words`, one on each line, or ":files" for the
// names of files. Names of objects come from the coordinator, if it answers within a second;
// otherwise there are none, since an error in the middle of a command line helps nobody.
std::string Complete(const std::vector<std::string>& words, const Environment& environment);

// The script for "bash", "zsh" or "fish".
std::string CompletionScript(const std::string& shell);

}  // namespace switchyard::ctl
