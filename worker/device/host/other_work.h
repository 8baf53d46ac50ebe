// Work of other streams that a long run lets in.
#pragma once

#include "absl/functional/function_ref.h"

namespace switchyard {

// Both are called on the thread that computes.
struct OtherWork {
  absl::FunctionRef<bool()> waits;  // cheap: asked after each expert
  absl::FunctionRef<void()> run;    // some of what waits, for a bounded time
};

}  // namespace switchyard
