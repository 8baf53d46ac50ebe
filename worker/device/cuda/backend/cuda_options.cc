#include "worker/device/cuda/backend/cuda_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

absl::StatusOr<CudaOptions> ReadCudaOptions(const DeviceKeys& keys) {
  CudaOptions options;
  for (const auto& [key, value] : keys) {
    if (key != "index") {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                       absl::StrCat("device cuda has no option '", key, "'; it has index"));
    }
    if (!absl::SimpleAtoi(value, &options.index) || options.index < 0) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrCat("device cuda: index is '", value, "', not a whole number from 0"));
    }
  }
  return options;
}

}  // namespace switchyard
