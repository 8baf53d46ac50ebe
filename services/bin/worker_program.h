// The program switchyard-worker with its devices left open: tests run it with devices of their own,
// whose work takes as long as they say.
#pragma once

#include "services/bin/running_worker.h"

namespace switchyard {

// Reads the command line and serves until SIGTERM, SIGINT, a refusal by the coordinator or the
// device's end. Blocks; to be called once, before the process has other threads. Returns the exit
// code of the process.
int RunWorkerProgram(int argc, char** argv, const MakeDeviceFunction& make_device);

}  // namespace switchyard
