#include "worker/device/cuda/backend/cuda_options.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr int kBusyPollMaxUs = 1'000'000;

}  // namespace

absl::StatusOr<CudaOptions> ReadCudaOptions(const DeviceKeys& keys) {
  CudaOptions options;
  for (const auto& [key, value] : keys) {
    int number = 0;
    const bool is_time = key == "busy_poll_us";
    const bool is_size = key == "source_kib_min";
    const bool is_shared = key == "shared_mib_max";
    const bool is_portable = key == "portable";
    if (key != "index" && !is_time && !is_size && !is_shared && !is_portable) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrCat("device cuda has no option '", key,
                       "'; it has index, busy_poll_us, portable, shared_mib_max, source_kib_min"));
    }
    const int most = is_time ? kBusyPollMaxUs : is_portable ? 1 : std::numeric_limits<int>::max();
    if (!absl::SimpleAtoi(value, &number) || number < 0 || number > most) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrCat("device cuda: ", key, " is '", value, "', not a whole number from 0",
                       is_time || is_portable ? absl::StrCat(" to ", most) : ""));
    }
    if (is_time) {
      options.busy_poll = std::chrono::microseconds(number);
    } else if (is_size) {
      options.source_bytes_min = static_cast<std::size_t>(number) << 10;
    } else if (is_shared) {
      options.shared_bytes_max = std::int64_t{number} << 20;
    } else if (is_portable) {
      options.portable = number == 1;
    } else {
      options.index = number;
    }
  }
  return options;
}

}  // namespace switchyard
