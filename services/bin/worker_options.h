// The options of switchyard-worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "services/bin/program_options.h"
#include "services/options/option.h"

namespace switchyard {

struct WorkerSettings {
  WorkerSettings();

  std::string coordinator;
  std::string id;
  std::string pool;
  Duration leave_timeout{};
  Duration leave_alone_timeout{};
  NetworkSettings network;
  std::string tls_dir;
  std::string tenants;  // path of a file
  std::string advertise;
  std::string net_devices;
  std::string data_ports;
  std::string ring_dir;
  std::string device;
  std::vector<std::string> wire_dtypes;
  Duration busy_poll{};
  std::int64_t weight_bytes_max = 0;
  std::size_t gateway_memory_bytes_max = 0;
  std::size_t gateway_sessions_max = 1;
  int load_threads = 1;
  LogSettings log;
};

// The table, bound to `settings`, which outlive it.
OptionTable WorkerOptionTable(WorkerSettings* settings);

// Says which of the comma-separated devices this machine lacks, and which it has; empty: none is
// missing. "all" stands for all.
std::string WhyNoNetDevices(const std::string& names);

}  // namespace switchyard
