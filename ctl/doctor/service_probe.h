// Asks name servers, the coordinator and its workers for 'syctl doctor'. Changes nothing.
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ctl/doctor/facts.h"
#include "ctl/doctor/within.h"
#include "services/security/transport_security.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/expert.pb.h"

namespace switchyard::ctl {

// Most workers whose ports are asked, and most hosts of workers that are looked up.
inline constexpr std::size_t kWorkersAskedMax = 64;

// One answer of a worker's port.
struct PortAnswer {
  absl::Status status;
  v1::GetStatusResponse answer;
};

// The calls of a run; each has a timeout of its own.
struct ServiceCalls {
  std::string target;  // of the coordinator
  std::shared_ptr<const TransportSecurity> security;
  std::function<absl::StatusOr<v1::GetVersionResponse>()> version;
  std::function<absl::StatusOr<v1::ListWorkersResponse>()> workers;
  std::function<absl::StatusOr<v1::ListEventsResponse>()> events;
  // Asks all of these workers at once; answers in their order.
  std::function<std::vector<PortAnswer>(const std::vector<v1::Worker>& workers,
                                        const v1::GetStatusRequest& request)>
      ask;
  // The next thing to try after an error; may be empty.
  std::function<std::string(const absl::Status& status)> next_step;
};

// Begins no step once `budget` is over. A name takes 2 s at most, health 2 s,
// other calls what they have as their timeout; 16 workers are asked at once.
ServiceFacts ProbeService(const ServiceCalls& calls, const Budget& budget);

// Looks a host up; an address is itself.
NameFacts ProbeName(const std::string& host, Duration most);
// The host of "host:port" and of "[address]:port".
std::string HostOf(absl::string_view endpoint);

}  // namespace switchyard::ctl
