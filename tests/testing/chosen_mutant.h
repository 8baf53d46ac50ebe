// The seeded bug that the command line of a test executable asks for.
#pragma once

#include <string>
#include <vector>

#include "core/mutant.h"

namespace switchyard::testing {

// That of --mutant=NAME; kNone without it. A name that this build does not have fails the test.
MutantId ChosenMutant();
// The flags that wake it in a worker process; empty without one.
std::vector<std::string> ChosenMutantFlags();

}  // namespace switchyard::testing
