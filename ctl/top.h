// syctl top: how busy each worker is, from its own counters.
//
// The coordinator says which workers there are, and each of them is asked twice, at the address
// that it advertises. A worker that cannot be reached from here has its problem in its row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "ctl/json.h"
#include "ctl/run.h"
#include "switchyard/v1/expert.pb.h"

namespace switchyard::ctl {

// One answer of a worker.
struct TopSample {
  absl::Status status;  // not OK: there is no answer
  TimePoint at;
  v1::GetStatusResponse answer;
};
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
  std::string problem;  // why it is not known; empty: it is
};
// Pure. A worker whose process has changed in between has no rates.
TopRow RowOf(const v1::Worker& worker, const TopSample& before, const TopSample& after);
// Ascending as given. Pure.
std::string TopTable(const std::vector<TopRow>& rows);

// Measures for a second; with --watch again and again. Errors: those of CoordinatorClient;
// kNotFound (BAD_REQUEST) for an unknown name.
absl::Status Top(const Run& run, std::string* out);

}  // namespace switchyard::ctl
