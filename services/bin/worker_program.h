// The program switchyard-worker with its devices left open: tests run it with devices of their own,
// whose work takes as long as they say.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Makes the device of the experts from the value of --device, as MakeDevice does.
using MakeDeviceFunction =
    std::function<absl::StatusOr<std::unique_ptr<DeviceBackend>>(absl::string_view, Logger*)>;

// Reads the command line and serves until SIGTERM, SIGINT, a refusal by the coordinator or the
// device's end. Blocks; to be called once, before the process has other threads. Returns the exit
// code of the process.
int RunWorkerProgram(int argc, char** argv, const MakeDeviceFunction& make_device);

}  // namespace switchyard
