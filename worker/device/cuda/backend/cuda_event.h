// An event of a CUDA stream. The completion thread completes it.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/device/host/host_event.h"

namespace switchyard {

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(cudaEvent_t raw) : raw_(raw) {}
  ~CudaEvent() override {
    if (raw_ != nullptr) (void)cudaEventDestroy(raw_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  [[nodiscard]] bool done() const override { return state_.done(); }
  [[nodiscard]] absl::Status status() const override { return state_.status(); }
  bool Wait(Duration timeout) override { return state_.Wait(timeout); }

  // Null when the device was lost before the event was made.
  [[nodiscard]] cudaEvent_t raw() const { return raw_; }
  void Open() { state_.Open(); }
  void Complete(absl::Status status) { state_.Complete(std::move(status)); }

 private:
  const cudaEvent_t raw_;
  HostEvent state_;
};

}  // namespace switchyard
