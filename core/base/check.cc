#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace switchyard {

void CheckFailed(absl::string_view condition, absl::string_view text, absl::string_view file,
                 int line) {
  const std::string said =
      absl::StrCat("CHECK failed: `", condition, "`: ", text, " (", file, ":", line, ")\n");
  // One write, so that lines of other threads do not cut this one. Only standard error is flushed:
  // another thread may hold the lock of any other stream, and abort must come in any case.
  std::fwrite(said.data(), 1, said.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace switchyard
