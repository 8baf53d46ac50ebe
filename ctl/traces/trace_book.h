// Spans that have come, by their trace, until each trace is complete as far as one can tell.
// Bounded; what is too much is dropped. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

#include "core/base/clock.h"
#include "switchyard/otlp/v1/trace.pb.h"

namespace switchyard::ctl {

// A span and the process that it is from.
struct TracedSpan {
  std::string service;
  std::string instance;
  otlp::v1::Span span;
};

// The spans of one step.
struct StepTrace {
  std::string id;  // of the trace, 32 hex digits
  std::vector<TracedSpan> spans;
};

class TraceBook {
 public:
  static constexpr std::size_t kTracesMax = 1000;
  static constexpr std::size_t kSpansMax = 4096;  // of a trace
  // The processes of a step send their spans within this time of each other.
  static constexpr Duration kQuiet = std::chrono::seconds(1);

  void Add(const otlp::v1::ExportTraceServiceRequest& request, TimePoint now);
  // The traces of which nothing has come for kQuiet, the oldest first.
  std::vector<StepTrace> TakeQuiet(TimePoint now);

 private:
  struct Open {
    StepTrace trace;
    TimePoint last;
    std::uint64_t number = 0;
  };
  std::map<std::string, Open> open_;  // by the trace's id
  std::uint64_t last_number_ = 0;
};

// As a tree: each span beneath the one that it is a part of, in the order of their begin.
std::string TraceText(const StepTrace& trace);
nlohmann::ordered_json TraceJson(const StepTrace& trace);

}  // namespace switchyard::ctl
