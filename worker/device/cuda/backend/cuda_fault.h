// The meaning of the CUDA runtime's errors for a worker.
//
// Some say that a call asked for too much or for nonsense; the device goes on. Every other error is
// sticky in CUDA: the context is lost, and with it the process. The first of those is named once,
// in the log, and every event and every later call fails with it.
//
// Thread-safe. broken() is one load.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include <cuda_runtime_api.h>

#include "core/base/log.h"
#include "core/base/mutex.h"

namespace switchyard {

class CudaFault {
 public:
  // `log` may be null; outlives the object.
  CudaFault(int device, Logger* log) : device_(device), log_(log) {}

  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_acquire); }
  // The fault: kUnavailable (WORKER_LOST), failure scope `worker`. OK while there is none.
  [[nodiscard]] absl::Status status() const;
  // OK for cudaSuccess. kResourceExhausted (OUT_OF_MEMORY) for memory, kInternal (INTERNAL) for a
  // call that the runtime refused, else the fault. `doing`: a phrase such as "copying rows".
  absl::Status Check(cudaError_t error, absl::string_view doing);
  // As Check, for an allocation of `bytes`; `on_device` or of pinned memory of the host. The error
  // says how much was needed and, of the device, how much is free.
  absl::Status CheckAllocation(cudaError_t error, std::int64_t bytes, bool on_device,
                               absl::string_view use);
  // The device did not finish in time.
  absl::Status ReportStuck(absl::string_view doing);

 private:
  absl::Status Break(absl::string_view what);

  const int device_;
  Logger* const log_;
  mutable Mutex mutex_;
  absl::Status why_ SY_GUARDED_BY(mutex_);
  std::atomic<bool> broken_{false};
};

}  // namespace switchyard
