// syctl top: how busy each worker is, from its own counters.
//
// Each worker is asked twice (ctl/worker_client.h), and all that its experts do counts: requests of
// attachments, chunks of its own gateway's sessions, and steps of sessions in lockstep. A worker
// that cannot be reached from here has its problem in its row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/work_times.h"
#include "ctl/json.h"
#include "ctl/run.h"
#include "ctl/worker_client.h"

namespace switchyard::ctl {

struct TopRow {
  std::string id;
  std::string state;
  // Unset where the counters of two answers cannot be compared.
  bool known = false;
  double rows_per_second = 0;
  double requests_per_second = 0;
  double rows_per_batch = 0;
  std::uint64_t errors = 0;  // requests that were answered with one, between the two answers
  std::uint64_t attachments = 0;
  // How long steps took that ended between the two answers, by kind. Empty: there were none, or the
  // worker's build does not tell.
  std::vector<WorkTimes> times;
  std::string problem;  // why it is not known, or what the coordinator knows to be wrong
};
// Pure. A worker whose process has changed in between has no rates.
TopRow RowOf(const v1::Worker& worker, const WorkerSample& before, const WorkerSample& after);
// Ascending as given; a worker with several kinds of work has a line for each. Pure.
std::string TopTable(const std::vector<TopRow>& rows);

// Measures for a second; with --watch again and again. Errors: those of CoordinatorClient;
// kNotFound (BAD_REQUEST) for an unknown name.
absl::Status Top(const Run& run, std::string* out);

}  // namespace switchyard::ctl
