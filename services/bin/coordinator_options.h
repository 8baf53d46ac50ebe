// The options of switchyard-coordinator.
#pragma once

#include <string>
#include <vector>

#include "coordinator/driver.h"
#include "coordinator/spec/dispatch_defaults.h"
#include "services/bin/program_options.h"
#include "services/options/option.h"

namespace switchyard {

struct CoordinatorSettings {
  CoordinatorSettings();

  NetworkSettings network;
  std::string tls_dir;
  std::string tenants;  // path of a file
  std::string reflection = "on";
  std::string page_hosts;  // with commas between
  std::string store = "sqlite:switchyard.sqlite";
  std::vector<std::string> deployments;
  int read_threads = 1;
  DispatchOptions dispatch;
  DriverOptions driver;
  LogSettings log;
};

// The table, bound to `settings`, which outlive it.
OptionTable CoordinatorOptionTable(CoordinatorSettings* settings);

}  // namespace switchyard
