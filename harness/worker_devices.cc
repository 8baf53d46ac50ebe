#include "harness/worker_devices.h"

#include <vector>

#include "absl/strings/str_split.h"

namespace switchyard {

std::string DeviceOfWorker(absl::string_view devices, std::size_t worker) {
  const std::vector<absl::string_view> all = absl::StrSplit(devices, ';');
  return std::string(all[worker % all.size()]);
}

}  // namespace switchyard
