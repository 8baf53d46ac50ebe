#include "ctl/traces/traces.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "ctl/traces/trace_book.h"
#include "services/tracing/trace_receiver.h"

namespace switchyard::ctl {
namespace {

// Between two looks at what has come.
constexpr Duration kLook = std::chrono::milliseconds(100);

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Passes spans from the threads of gRPC to the command's.
class Arrivals {
 public:
  void Add(const otlp::v1::ExportTraceServiceRequest& request) {
    const MutexLock lock(mutex_);
    book_.Add(request, Now());
  }
  // Waits for kLook at most, and for `until`.
  std::vector<StepTrace> Take(TimePoint until) {
    const TimePoint look = std::min(until, Now() + kLook);
    const MutexLock lock(mutex_);
    // Nothing notifies: a trace is complete when time passes.
    while (changed_.WaitUntil(mutex_, look)) {
    }
    return book_.TakeQuiet(Now());
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  TraceBook book_ SY_GUARDED_BY(mutex_);
};

// Bytes that are no UTF-8 become U+FFFD: anybody can send them.
std::string Document(const StepTrace& trace) {
  return TraceJson(trace).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

absl::Status TakeTraces(const TracesOptions& options) {
  // The command line was checked.
  const std::size_t colon = options.listen.rfind(':');
  int port = 0;
  (void)absl::SimpleAtoi(options.listen.substr(colon + 1), &port);
  Arrivals arrivals;
  SY_ASSIGN_OR_RETURN(
      const std::unique_ptr<TraceReceiver> receiver,
      TraceReceiver::Start(options.listen.substr(0, colon), port,
                           [&arrivals](const auto& request) { arrivals.Add(request); }));
  if (options.tell) options.tell(absl::StrCat("takes traces at ", receiver->endpoint()));
  const TimePoint until =
      options.within > Duration::zero() ? Now() + options.within : TimePoint::max();
  std::uint64_t shown = 0;
  while (Now() < until) {
    for (const StepTrace& trace : arrivals.Take(until)) {
      if (!options.show(options.json ? Document(trace) : TraceText(trace))) return absl::OkStatus();
      if (++shown == options.count) return absl::OkStatus();
    }
  }
  if (shown >= options.count) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
      absl::StrCat(shown, " of ", options.count, " traces have come to ", options.listen,
                   "; is the coordinator's --trace-endpoint this address, and its "
                   "--trace-ratio above 0?"));
}

}  // namespace switchyard::ctl
