// The tables of docs/CONFIGURATION.md, from the programs' options.
#pragma once

#include <string>
#include <vector>

#include "services/options/option.h"

namespace switchyard::docs {

// One table for each section of the file, under a heading each.
std::vector<std::string> OptionLines(const OptionTable& table);

// `page` with the lines between "<!-- options of PROGRAM -->" and the next "<!-- end -->" replaced.
std::vector<std::string> WithOptions(const std::vector<std::string>& page,
                                     const OptionTable& table);

}  // namespace switchyard::docs
