// What a reader promises, checked while it is fuzzed.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace switchyard::fuzz {

// Ends the process, as a finding of the fuzzer, unless `holds`.
inline void Check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace switchyard::fuzz
