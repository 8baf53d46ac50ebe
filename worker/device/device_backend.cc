#include "worker/device/device_backend.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status SharesNone() {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "the device shares no memory with other processes");
}

}  // namespace

absl::StatusOr<SharedBuffer> DeviceBackend::AllocateShared(std::size_t /*bytes*/) {
  return SharesNone();
}

absl::StatusOr<std::unique_ptr<Buffer>> DeviceBackend::OpenShared(absl::string_view /*key*/,
                                                                  std::size_t /*bytes*/) {
  return SharesNone();
}

absl::StatusOr<std::unique_ptr<Exchange>> DeviceBackend::MakeExchange(const ExchangeSpec& /*spec*/,
                                                                      std::int32_t /*rank*/) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "the device joins no groups that exchange rows");
}

absl::Status Exchange::Record(void* /*capturing*/, const ExchangeStep& /*step*/) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   "this device has no graphs; submit the steps one by one");
}

}  // namespace switchyard
