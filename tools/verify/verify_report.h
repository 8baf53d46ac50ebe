// What the verify program prints: tables for people, one JSON object for scripts.
#pragma once

#include <string>

#include "tools/verify/verify.h"

namespace switchyard::qwen3_moe {

// A row for each block and text, the greedy texts, the workers, the verdict. Ends with a newline.
std::string VerifyTable(const VerifyReport& report);
// The same as one object; a figure that is not a number is null.
std::string VerifyJson(const VerifyReport& report);

}  // namespace switchyard::qwen3_moe
