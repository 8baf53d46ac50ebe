// The work of syctl traces: a collector for a terminal. It takes the spans that sources and workers
// send, and shows each trace once nothing more comes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

#include "core/base/clock.h"

namespace switchyard::ctl {

struct TracesOptions {
  std::string listen;       // "host:port"; port 0: any free one
  std::uint64_t count = 0;  // ends after so many; 0: no end
  Duration within{};        // ends then; zero: no end
  bool json = false;        // instead of a tree
  // A line on what it waits for. May be null.
  std::function<void(const std::string& line)> tell;
  // A trace. False: nobody reads any more.
  std::function<bool(const std::string& text)> show;
};

// Errors: kUnavailable (ADDRESS_IN_USE) and others of GrpcServer::Start; kDeadlineExceeded
// (NOT_READY) when the time is over before `count` traces have come.
absl::Status TakeTraces(const TracesOptions& options);

}  // namespace switchyard::ctl
