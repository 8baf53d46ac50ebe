// Draws what a service program reads and loads as one line, where its log is a terminal. A log that
// is no terminal has a line every ten seconds instead, from those who do the work.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"

#include "coordinator/progress/rate_meter.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/cli/progress_line.h"
#include "core/control_messages.h"
#include "services/bin/bin_support.h"

namespace switchyard {

// Returns the checkpoint that the coordinator reads, or else the workers that load, in one sum over
// all deployments. The last of them decides how much time is left. Unset: neither.
std::optional<ProgressFacts> ProgressOf(const CoordinatorView& view);

// Measures what a worker loads. Not thread-safe.
class WorkerProgress {
 public:
  std::optional<ProgressFacts> Of(const Heartbeat& heartbeat, TimePoint now);

 private:
  RateMeter rate_;
};

// Draws until it is destroyed, which leaves an empty line.
class StartProgress {
 public:
  using Look = std::function<std::optional<ProgressFacts>()>;

  // Calls `look` a few times a second, from a thread of its own, if people read the log in text on
  // a terminal that can do it. `term` is the variable TERM.
  StartProgress(ProgramLog* log, absl::string_view term, Look look);
  ~StartProgress();
  StartProgress(const StartProgress&) = delete;
  StartProgress& operator=(const StartProgress&) = delete;

 private:
  class Painter;
  std::unique_ptr<Painter> painter_;  // null: nothing is drawn
};

}  // namespace switchyard
