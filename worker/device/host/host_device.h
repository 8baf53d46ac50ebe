// The parts that all devices that compute in host memory share: memory, tables, workspaces and
// streams. A device brings its kernels (HostKernels), packing, codecs and capabilities.
//
// Threads: as the seam says. One compute thread serves all streams of a device.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "worker/device/device_backend.h"
#include "worker/device/host/compute_thread.h"
#include "worker/device/host/host_kernels.h"
#include "worker/device/host/host_stream.h"

namespace switchyard {

class HostDevice : public DeviceBackend, protected HostKernels {
 public:
  explicit HostDevice(InlineLimits limits = {}) : limits_(limits) {}

  [[nodiscard]] bool host_access() const override { return true; }
  // All kinds are host memory here, so a pipeline that copies between kinds can be tested without a
  // GPU.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes, MemoryKind kind) override;
  // O(entries); keeps the experts alive.
  absl::StatusOr<std::unique_ptr<ExpertTable>> MakeTable(std::vector<TableEntry> entries) override;
  // Starts the compute thread when it is the first. Errors: as the seam.
  absl::StatusOr<std::unique_ptr<Workspace>> MakeWorkspace(const MoeShape& shape,
                                                           std::int64_t pairs_max) override;
  // For any wire format that the device has a codec for, and up to 64 ranks of one user, in one PID
  // namespace. A device may be several ranks, of one group or of several.
  absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(const ExchangeSpec& spec,
                                                         std::int32_t rank) override;
  // A stream that only encodes and sums needs no compute thread.
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamOptions options) override;

 private:
  // Once; only devices that run experts or steps need the thread.
  absl::Status StartComputing();

  const InlineLimits limits_;
  Mutex mutex_;                             // one StartComputing at a time
  std::unique_ptr<ComputeThread> compute_;  // set by the first StartComputing, then constant
};

}  // namespace switchyard
