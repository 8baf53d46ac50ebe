// syctl get metrics: what the coordinator and the workers measure, without a Prometheus.
//
// The coordinator is asked for its own, and each worker at the address that it advertises. Without
// a name the table has the most important ones and leaves zeros out; of one program it has all.
// JSON always has all, each bucket included.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/repeated_ptr_field.h"

#include "ctl/run.h"
#include "switchyard/v1/metrics.pb.h"

namespace switchyard::ctl {

// The metrics of one program.
struct ProgramMetrics {
  std::string source;   // "coordinator", or a worker's id
  std::string problem;  // why there are none; empty: nothing is wrong
  google::protobuf::RepeatedPtrField<v1::Metric> metrics;
};
// `all`: also what is unimportant or zero. Pure.
std::string MetricsTable(const std::vector<ProgramMetrics>& programs, bool all);

// Errors: those of CoordinatorClient; kNotFound (BAD_REQUEST) for an unknown name.
absl::Status GetMetrics(const Run& run, std::string* out);

}  // namespace switchyard::ctl
