// switchyard-worker on a late device of host memory: a row of prefill takes a millisecond and one
// of decode 1.25, whatever the machine, and next to no CPU time. Drills of long steps run side by
// side on it.
#include <utility>

#include "services/bin/worker_program.h"
#include "tests/testing/late_device.h"

namespace switchyard {
namespace {

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeLateDevice(absl::string_view /*spec*/,
                                                              Logger* /*log*/) {
  testing::LateDeviceOptions options;
  options.kernel_family = "";
  options.host_access = true;
  options.decode_row = std::chrono::microseconds(1250);
  options.prefill_row = std::chrono::milliseconds(1);
  return testing::LateDevice::Create(std::move(options));
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  return switchyard::RunWorkerProgram(argc, argv, &switchyard::MakeLateDevice);
}
