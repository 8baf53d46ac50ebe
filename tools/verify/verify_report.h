// The output of the verify program: tables for people, one JSON object for scripts. Pure;
// thread-safe.
#pragma once

#include <string>

#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {

// One row for each block and text, the greedy texts, the workers and the result. Ends with a
// newline.
std::string VerifyTable(const VerifyReport& report);
// The same as one object. A value that is not a number is null.
std::string VerifyJson(const VerifyReport& report);

}  // namespace switchyard::qwen3_moe
