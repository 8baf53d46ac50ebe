// switchyard-worker: hosts experts, serves sources and is a gateway for callers without UCX. Exit
// codes: core/cli/exit_code.h.
#include "core/cli/process_end.h"
#include "services/bin/worker_program.h"
#include "worker/registry/device_registry.h"

int main(int argc, char** argv) {
  switchyard::KeepTlsForThreads();
  return switchyard::RunWorkerProgram(argc, argv, &switchyard::MakeDevice);
}
