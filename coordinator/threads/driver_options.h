// Options of a coordinator's driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "coordinator/spec/options.h"
#include "core/base/clock.h"

namespace switchyard {

struct DriverOptions {
  CoordinatorOptions coordinator;
  std::string placement = "sticky";               // a row of placement/registry.h
  std::size_t queue_max = 4096;                   // events waiting; beyond it calls are refused
  Duration tick = std::chrono::milliseconds(50);  // how often leases and time-outs are checked
};

}  // namespace switchyard
