// The duty of a worker: how an operator lets plans use it. It belongs to the worker's id and stays
// until the operator takes it back, also while the worker is away and when it comes back as a new
// process.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace switchyard {

// Stored values: append, never renumber.
enum class WorkerDuty : std::uint8_t {
  // Plans use it.
  kServe = 0,
  // Plans that it serves in keep it; no other plan takes it in.
  kCordoned = 1,
  // Plans do without it, as if it had asked to leave, but its process goes on.
  kDraining = 2,
};
inline constexpr auto kLastWorkerDuty = WorkerDuty::kDraining;

// "serve", "cordoned" or "draining".
absl::string_view WorkerDutyName(WorkerDuty duty);

// By worker id; workers that are not named serve.
using WorkerDuties = std::map<std::string, WorkerDuty>;
// The most workers that may have another duty than kServe.
inline constexpr std::size_t kWorkerDutiesMax = 4096;

}  // namespace switchyard
